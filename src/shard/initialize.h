// Fills master shards with initial values, each rank only its own range.
#pragma once

#include "shard/layout.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace fullshard::shard {

/// Values, row-major, of a stage's parameters that only its module knows (InitRule::kModule), by
/// parameter of its spec; empty ones for the others.
using ModuleValues = std::function<std::vector<std::vector<float>>(std::size_t stage)>;

/// Sets every parameter to its initial value, a function of (seed, name, element) at any world
/// size, and padding to zero; then publishes the units. A stage's module values exist while its own
/// parameters are set and no longer. Collective.
void initialize_parameters(UnitStore& store, const Layout& layout, std::uint64_t seed,
                           const ModuleValues& module_values);

}  // namespace fullshard::shard
