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

std::span<const Strategy> strategies() {
    using enum Holding;
    static constexpr std::array kTable{
        Strategy{"no_shard", kReplicated, kReplicated, kReplicated},
        Strategy{"full_shard", kSharded, kSharded, kSharded},
    };
    return kTable;
}

const Strategy& find_strategy(std::string_view name) {
    const auto table = strategies();
    const auto found = std::ranges::find(table, name, &Strategy::name);
    if (found != table.end()) return *found;
    std::vector<std::string_view> names;
    std::ranges::transform(table, std::back_inserter(names), &Strategy::name);
    throw UsageError(fmt::format("shard.strategy = {} is not known; use one of {}", name,
                                 fmt::join(names, ", ")));
}

StoreKind choose_store(const Strategy& strategy, StorePreference preference, const Place& place) {
    if (strategy.parameters == Holding::kReplicated) return StoreKind::kPrivate;
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
                                      const comm::Group& world, const comm::NodeLanes& lanes,
                                      const StoreOptions& options) {
    switch (kind) {
        case StoreKind::kPrivate:
            return std::make_unique<PrivateStore>(layout, world, options);
        case StoreKind::kResident:
            return std::make_unique<ResidentNodeStore>(layout, lanes, options);
        case StoreKind::kSlotted:
            break;
    }
    return std::make_unique<SlottedStore>(layout, lanes, options);
}

}  // namespace fullshard::shard
