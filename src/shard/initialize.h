// Fills master shards with initial values, each rank only its own range.
#pragma once

#include "shard/layout.h"
#include "shard/unit_store.h"

#include <cstdint>

namespace fullshard::shard {

/// Sets every parameter to its initial value, a function of (seed, name, element) at any world
/// size, and padding to zero; then publishes the units. Collective.
void initialize_parameters(UnitStore& store, const Layout& layout, std::uint64_t seed);

}  // namespace fullshard::shard
