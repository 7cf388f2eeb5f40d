#include "shard/strategy.h"

#include "base/error.h"
#include "shard/private_store.h"
#include "shard/resident_node_store.h"
#include "shard/slotted_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace fullshard::shard {

// clang-format off
std::span<const Strategy> strategies() {
    using enum Holding;
    using enum GroupExtent;
    static constexpr std::array kTable{
        //       name                  group   parameters   gradients    optimizer
        Strategy{"no_shard",           kWorld, kReplicated, kReplicated, kReplicated},
        Strategy{"zero1",              kWorld, kReplicated, kReplicated, kSharded},
        Strategy{"shard_grad_op",      kWorld, kReplicated, kSharded,    kSharded},
        Strategy{"full_shard",         kWorld, kSharded,    kSharded,    kSharded},
        Strategy{"hybrid_shard",       kNode,  kSharded,    kSharded,    kSharded},
        Strategy{"hybrid_shard_zero2", kNode,  kReplicated, kSharded,    kSharded},
    };
    return kTable;
}
// clang-format on

const Strategy& find_strategy(std::string_view name) {
    const auto table = strategies();
    const auto found = std::ranges::find(table, name, &Strategy::name);
    if (found != table.end()) return *found;
    std::vector<std::string_view> names;
    std::ranges::transform(table, std::back_inserter(names), &Strategy::name);
    throw UsageError(fmt::format("shard.strategy = {} is not known; use one of {}", name,
                                 fmt::join(names, ", ")));
}

std::int64_t group_size(const Strategy& strategy, std::int64_t asked,
                        const comm::Topology& topology) {
    const std::int64_t ranks = topology.world.size();
    if (strategy.keeps_everything()) return 1;
    if (asked > 0) {
        if (ranks % asked == 0) return asked;
        throw UsageError(fmt::format(
            "shard.group_size = {} does not divide the {} ranks; use a divisor, or 0 for the "
            "strategy's own",
            asked, ranks));
    }
    if (strategy.group == GroupExtent::kWorld) return ranks;
    if (topology.equal_nodes()) return topology.node_sizes.front();
    throw UsageError(fmt::format(
        "shard.strategy = {} shards within a node, but nodes hold {} ranks; start as many on "
        "each, or set shard.group_size",
        strategy.name, fmt::join(topology.node_sizes, ", ")));
}

StoreKind choose_store(const Strategy& strategy, StorePreference preference, const Place& place) {
    if (strategy.keeps_everything()) return StoreKind::kPrivate;
    if (preference == StorePreference::kSlotted) return StoreKind::kSlotted;
    if (place.lane_size == 1) return StoreKind::kResident;
    if (preference == StorePreference::kResident) {
        throw UsageError(
            "shard.store = resident needs all ranks of the shard group on one node with "
            "comm.node_shared = on; use auto or slotted");
    }
    return StoreKind::kSlotted;
}

std::unique_ptr<UnitStore> make_store(StoreKind kind, const Layout& layout,
                                      const Schedule& schedule, const comm::Mesh& mesh,
                                      const StoreOptions& options) {
    switch (kind) {
        case StoreKind::kPrivate:
            return std::make_unique<PrivateStore>(layout, schedule, mesh.replicas, options);
        case StoreKind::kResident:
            return std::make_unique<ResidentNodeStore>(layout, schedule, mesh, options);
        case StoreKind::kDevice:
            throw LogicError("a device's store is made with its device");
        case StoreKind::kSlotted:
            break;
    }
    return std::make_unique<SlottedStore>(layout, schedule, mesh, options);
}

}  // namespace fullshard::shard
