#include "shard/schedule.h"

#include "base/rng.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::shard {

namespace {

void link_prefetches(std::vector<Visit>& visits) {
    for (std::size_t i = 0; i + 1 < visits.size(); ++i) visits[i].prefetch = visits[i + 1].unit;
}

}  // namespace

std::int64_t Schedule::unshards(std::int64_t unit) const {
    return std::ranges::count(forward, unit, &Visit::unit) +
           std::ranges::count(backward, unit, &Visit::unit);
}

std::uint64_t Schedule::hash(const Layout& layout) const {
    return stable_hash(describe(layout));
}

std::string Schedule::describe(const Layout& layout) const {
    std::string text;
    const auto append = [&](const char* pass, const std::vector<Visit>& visits) {
        for (const Visit& visit : visits) {
            const Unit& unit = layout.units[static_cast<std::size_t>(visit.unit)];
            text += fmt::format("{} {} ({} elements, {} padded, {} shards)", pass, unit.name(),
                                unit.numel(), unit.padded(), layout.shards);
            if (visit.prefetch != Visit::kNone) {
                text += fmt::format(", prefetch {}",
                                    layout.units[static_cast<std::size_t>(visit.prefetch)].name());
            }
            text += '\n';
        }
    };
    append("forward", forward);
    append("backward", backward);
    return text;
}

Schedule make_schedule(const Layout& layout) {
    Schedule schedule;
    const auto units = static_cast<std::int64_t>(layout.units.size());
    for (std::int64_t unit = 0; unit < units; ++unit) schedule.forward.push_back({unit});
    const auto first_trainable =
        std::ranges::find_if(layout.units, &Unit::trainable) - layout.units.begin();
    for (std::int64_t unit = units - 1; unit >= first_trainable; --unit) {
        schedule.backward.push_back({unit});
    }
    link_prefetches(schedule.forward);
    link_prefetches(schedule.backward);
    return schedule;
}

}  // namespace fullshard::shard
