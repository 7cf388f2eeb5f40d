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
enum class GroupExtent : std::uint8_t { kWorld, kNode };

/// Where each kind of state lives over the ranks of a shard group. Shard groups are replicas of one
/// another.
struct Strategy {
    std::string_view name;
    GroupExtent group;   ///< the shard group, unless a size is asked for
    Holding parameters;  ///< replicated: unsharded from the first use after an update to the next
    Holding gradients;   ///< replicated: a rank's whole gradient has memory of its own
    Holding optimizer;

    /// Nothing is sharded at all.
    bool keeps_everything() const { return optimizer == Holding::kReplicated; }
    Residency residency() const {
        return parameters == Holding::kSharded ? Residency::kWhileUsed : Residency::kUntilUpdate;
    }
};

std::span<const Strategy> strategies();
/// Throws UsageError listing the known names.
const Strategy& find_strategy(std::string_view name);

/// Ranks of a shard group: `asked`, or the strategy's extent for 0; 1 for a strategy that shards
/// nothing. Throws UsageError for a number that does not divide the world's, and for the extent of
/// a node where nodes are unequal.
std::int64_t group_size(const Strategy& strategy, std::int64_t asked,
                        const comm::Topology& topology);

enum class StoreKind : std::uint8_t { kPrivate, kResident, kSlotted, kDevice };
/// What the user asked for; kAuto: resident where all ranks of the shard group share a node.
enum class StorePreference : std::uint8_t { kAuto, kResident, kSlotted };

/// Throws UsageError for a resident store that spans nodes or does not share memory.
StoreKind choose_store(const Strategy& strategy, StorePreference preference, const Place& place);

/// Of a store on the host. Collective over the mesh's ranks.
std::unique_ptr<UnitStore> make_store(StoreKind kind, const Layout& layout,
                                      const Schedule& schedule, const comm::Mesh& mesh,
                                      const StoreOptions& options);

}  // namespace fullshard::shard
