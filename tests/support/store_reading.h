// What a store holds, as plain vectors in the model's order: for comparisons across stores and
// worlds.
#pragma once

#include "comm/group.h"
#include "shard/layout.h"
#include "shard/unit_store.h"

#include <span>
#include <vector>

namespace fullshard::testing {

/// One vector per parameter, units in order, from memory that is laid out like the owned ranges:
/// one span a unit; an empty one is read as zeros. Collective over the shard group.
std::vector<std::vector<float>> gather_owned(std::span<const std::span<const float>> owned,
                                             const shard::Layout& layout,
                                             const comm::Group& shard_group);

/// Master parameters.
std::vector<std::vector<float>> read_parameters(shard::UnitStore& store,
                                                const shard::Layout& layout,
                                                const comm::Group& shard_group);

/// Summed gradients, after `finish_reductions`.
std::vector<std::vector<float>> read_gradients(const shard::UnitStore& store,
                                               const shard::Layout& layout,
                                               const comm::Group& shard_group);

/// All values in one vector.
std::vector<float> joined(const std::vector<std::vector<float>>& parameters);

bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace fullshard::testing
