#include "shard/schedule.h"

#include "base/rng.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::shard {

namespace {

std::size_t index(std::int64_t unit) {
    return static_cast<std::size_t>(unit);
}

Visit make_visit(const Layout& layout, std::size_t segment) {
    Visit visit;
    visit.stages = layout.segments[segment];
    for (const std::int64_t unit : layout.units_of_segment(segment)) visit.uses.push_back({unit});
    return visit;
}

/// A unit is kept between the visits of a pass and treated as `at_end` says after the last.
void set_reshards(std::vector<Visit>& visits, const Layout& layout, Reshard at_end) {
    std::vector<bool> used_later(layout.units.size());
    for (auto visit = visits.rbegin(); visit != visits.rend(); ++visit) {
        for (UnitUse& use : visit->uses) {
            use.after = used_later[index(use.unit)] ? Reshard::kKeep : at_end;
            used_later[index(use.unit)] = true;
        }
    }
}

/// Lets each visit start the units of the visit `ahead` of it; the first one also those between.
/// Units that an earlier visit of the pass has unsharded and kept need no start.
void set_prefetches(std::vector<Visit>& visits, std::int64_t ahead,
                    std::vector<std::int64_t> Visit::*list) {
    std::vector<std::int64_t> seen;
    const auto start = [&](Visit& from, const Visit& of) {
        for (const UnitUse& use : of.uses) {
            if (std::ranges::find(seen, use.unit) != seen.end()) continue;
            seen.push_back(use.unit);
            (from.*list).push_back(use.unit);
        }
    };
    if (visits.empty()) return;
    for (const UnitUse& use : visits.front().uses) seen.push_back(use.unit);
    const auto count = static_cast<std::int64_t>(visits.size());
    for (std::int64_t i = 1; i < std::min(ahead, count); ++i) {
        start(visits.front(), visits[index(i)]);
    }
    for (std::int64_t i = 0; i + ahead < count; ++i) {
        start(visits[index(i)], visits[index(i + ahead)]);
    }
}

/// Gradients of a unit begin in its first backward visit and are complete after its last one.
void set_gradients(std::vector<Visit>& backward, const Layout& layout) {
    std::vector<Visit*> last(layout.units.size());
    for (Visit& visit : backward) {
        for (const UnitUse& use : visit.uses) {
            if (!layout.units[index(use.unit)].trainable()) continue;
            if (last[index(use.unit)] == nullptr) visit.first_gradients.push_back(use.unit);
            last[index(use.unit)] = &visit;
        }
    }
    for (std::size_t unit = 0; unit < last.size(); ++unit) {
        if (last[unit] != nullptr) {
            last[unit]->reductions.push_back(static_cast<std::int64_t>(unit));
        }
    }
}

bool learns(const Layout& layout, const Visit& visit) {
    return std::ranges::any_of(visit.stages, [&](std::size_t stage) {
        return std::ranges::any_of(layout.homes[stage], [&](const ParameterHome& home) {
            return layout.units[home.unit].parameters()[home.parameter].trainable;
        });
    });
}

/// The last visit of the forward pass and the first one of the backward pass are of one segment.
void keep_between_passes(Schedule& schedule) {
    if (schedule.backward.empty()) return;
    for (UnitUse& use : schedule.forward.back().uses) use.after = Reshard::kKeep;
}

Reshard at_end_of_pass(Residency residency) {
    switch (residency) {
        case Residency::kUntilUpdate:
            return Reshard::kKeep;
        case Residency::kSmallerGroup:
            return Reshard::kToGroup;
        case Residency::kWhileUsed:
            break;
    }
    return Reshard::kFully;
}

std::string_view word(Reshard reshard) {
    switch (reshard) {
        case Reshard::kKeep:
            return "keep";
        case Reshard::kToGroup:
            return "reshard to the smaller group";
        case Reshard::kFully:
            break;
    }
    return "reshard";
}

}  // namespace

std::uint64_t Schedule::hash(const Layout& layout) const {
    std::string text = describe(layout);
    for (const Unit& unit : layout.units) {
        text +=
            fmt::format("{} {} {} {}\n", unit.name(), unit.numel(), unit.padded(), layout.shards);
    }
    return stable_hash(text);
}

std::string Schedule::describe(const Layout& layout) const {
    std::string text;
    const auto name = [&](std::int64_t unit) { return layout.units[index(unit)].name(); };
    const auto append = [&](std::string_view label, const std::vector<std::int64_t>& units) {
        for (const std::int64_t unit : units) text += fmt::format(", {} {}", label, name(unit));
    };
    const auto append_pass = [&](std::string_view pass, const std::vector<Visit>& visits) {
        for (const Visit& visit : visits) {
            text +=
                fmt::format("{} stages {} to {}", pass, visit.stages.front(), visit.stages.back());
            for (const UnitUse& use : visit.uses) {
                text += fmt::format(", {} then {}", name(use.unit), word(use.after));
            }
            append("prefetch", visit.prefetch);
            append("afterwards prefetch", visit.prefetch_after);
            append("begin gradients of", visit.first_gradients);
            append("reduce", visit.reductions);
            text += '\n';
        }
    };
    append_pass("forward", forward);
    append_pass("backward", backward);
    append_pass("evaluation", evaluation);
    return text;
}

std::vector<bool> Schedule::shared_units(const Layout& layout) const {
    std::vector<int> visits(layout.units.size());
    for (const Visit& visit : forward) {
        for (const UnitUse& use : visit.uses) ++visits[index(use.unit)];
    }
    std::vector<bool> shared;
    for (const int count : visits) shared.push_back(count > 1);
    return shared;
}

Schedule make_schedule(const Layout& layout, Residency residency, const Prefetch& prefetch) {
    Schedule schedule;
    for (std::size_t segment = 0; segment < layout.segments.size(); ++segment) {
        schedule.forward.push_back(make_visit(layout, segment));
    }
    schedule.evaluation = schedule.forward;
    const auto first = std::ranges::find_if(
        schedule.forward, [&](const Visit& visit) { return learns(layout, visit); });
    schedule.backward = {std::make_reverse_iterator(schedule.forward.end()),
                         std::make_reverse_iterator(first)};

    for (auto* pass : {&schedule.forward, &schedule.backward, &schedule.evaluation}) {
        set_reshards(*pass, layout, at_end_of_pass(residency));
    }
    keep_between_passes(schedule);
    if (prefetch.forward) {
        set_prefetches(schedule.forward, prefetch.ahead, &Visit::prefetch);
        set_prefetches(schedule.evaluation, prefetch.ahead, &Visit::prefetch);
    }
    if (prefetch.backward != Prefetch::Backward::kOff) {
        set_prefetches(schedule.backward, prefetch.ahead,
                       prefetch.backward == Prefetch::Backward::kPre ? &Visit::prefetch
                                                                     : &Visit::prefetch_after);
    }
    set_gradients(schedule.backward, layout);
    return schedule;
}

}  // namespace fullshard::shard
