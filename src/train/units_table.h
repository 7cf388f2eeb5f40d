// The table of units: what anyone asks for first who wonders about memory.
#pragma once

#include "base/span.h"
#include "shard/layout.h"
#include "spec/model_spec.h"

#include <cstddef>
#include <limits>
#include <string>

namespace fullshard::train {

inline constexpr std::size_t kAllUnits = std::numeric_limits<std::size_t>::max();

/// One line a unit, with a head and totals: name, stages, elements, how many of them are trained,
/// padding of the flat parameter, elements of one shard, slot, bytes of the unsharded unit in the
/// compute type and of one fp32 master shard. `slots` is null where every unit has memory of its
/// own for good. More units than `most_rows`
/// are folded: neighbours of equal sizes share a line with the numbers of one of them, and where
/// that does not suffice the last line but the totals is for all the others together. Ends with a
/// line break.
std::string units_table(const spec::ModelSpec& model, const shard::Layout& layout,
                        const shard::SlotPlan* slots, DType compute,
                        std::size_t most_rows = kAllUnits);

}  // namespace fullshard::train
