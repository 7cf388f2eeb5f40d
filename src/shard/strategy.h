// Sharding strategies as data, and the store that carries one out.
#pragma once

#include "comm/topology.h"
#include "shard/layout.h"
#include "shard/place.h"
#include "shard/store_options.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace fullshard::shard {

enum class Holding : std::uint8_t { kReplicated, kSharded };

/// Where each kind of state lives over the ranks of the shard group.
struct Strategy {
    std::string_view name;
    Holding parameters;
    Holding gradients;
    Holding optimizer;

    /// Parts the flat parameters are cut into on `ranks` ranks.
    std::int64_t shards(std::int64_t ranks) const {
        return parameters == Holding::kSharded ? ranks : 1;
    }
};

std::span<const Strategy> strategies();
/// Throws UsageError listing the known names.
const Strategy& find_strategy(std::string_view name);

enum class StoreKind : std::uint8_t { kPrivate, kResident, kSlotted };
/// What the user asked for; kAuto: resident where all ranks of the shard group share a node.
enum class StorePreference : std::uint8_t { kAuto, kResident, kSlotted };

/// Throws UsageError for a resident store that spans nodes or does not share memory.
StoreKind choose_store(const Strategy& strategy, StorePreference preference, const Place& place);

/// Collective over the topology's world.
std::unique_ptr<UnitStore> make_store(StoreKind kind, const Layout& layout,
                                      const comm::Group& world, const comm::NodeLanes& lanes,
                                      const StoreOptions& options);

}  // namespace fullshard::shard
