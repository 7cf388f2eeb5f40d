#include "shard/layout.h"

#include "base/error.h"
#include "base/round_up.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace fullshard::shard {

namespace {
constexpr std::int64_t kParameterAlignment = 64;  // elements: 256 bytes of float32
constexpr std::int64_t kShardAlignment = 32;      // elements: 64 bytes, a cache line, at half width

/// Runs of consecutive stages, as the policy groups them.
std::vector<std::vector<std::size_t>> wrap_stages(const spec::ModelSpec& model, const Wrap& wrap) {
    std::vector<std::vector<std::size_t>> segments;
    std::int64_t numel = 0;  // of the segment being filled
    for (std::size_t stage = 0; stage < model.stages.size(); ++stage) {
        const bool full = segments.empty() || wrap.policy == WrapPolicy::kBlock ||
                          (wrap.policy == WrapPolicy::kSize && numel >= wrap.min_num_params);
        if (full) {
            segments.emplace_back();
            numel = 0;
        }
        segments.back().push_back(stage);
        numel += model.stages[stage].numel();
    }
    return segments;
}

std::string unit_name(const spec::ModelSpec& model, const std::vector<std::size_t>& stages) {
    const std::string& first = model.stages[stages.front()].name;
    if (stages.size() == 1) return first;
    return first + ".." + model.stages[stages.back()].name;
}

/// Hands out homes of parameters in the order of stages and remembers them by name for ties.
class Homes {
  public:
    ParameterHome own(const spec::ParameterSpec& parameter, ParameterHome home) {
        ensure(by_name_.emplace(parameter.name, Known{home, parameter.shape}).second,
               "names of parameters are unique");
        return home;
    }
    ParameterHome tied(const spec::ParameterSpec& parameter) const {
        const auto found = by_name_.find(parameter.tied_to);
        ensure(found != by_name_.end() && found->second.shape == parameter.shape,
               "a parameter is tied to one of an earlier stage and of its shape");
        return found->second.home;
    }

  private:
    struct Known {
        ParameterHome home;
        std::vector<std::int64_t> shape;
    };
    std::map<std::string, Known, std::less<>> by_name_;
};

}  // namespace

Unit::Unit(std::string name, std::vector<std::size_t> stages,
           std::vector<spec::ParameterSpec> parameters, std::int64_t shards)
    : name_(std::move(name)),
      stages_(std::move(stages)),
      parameters_(std::move(parameters)),
      placements_(parameters_.size()) {
    ensure(shards > 0, "a unit has at least one shard");
    std::int64_t end = 0;
    for (const bool trainable : {true, false}) {
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            if (parameters_[i].trainable != trainable) continue;
            placements_[i] = {round_up(end, kParameterAlignment), parameters_[i].numel()};
            end = placements_[i].offset + placements_[i].numel;
        }
    }
    // A multiple of both: flat parameters behind one another keep the parameters' alignment.
    padded_ = round_up(end, std::lcm(shards * kShardAlignment, kParameterAlignment));
    shard_ = padded_ / shards;
}

std::int64_t Unit::numel() const {
    return std::accumulate(placements_.begin(), placements_.end(), std::int64_t{0},
                           [](std::int64_t sum, const Placement& p) { return sum + p.numel; });
}

bool Unit::trainable() const {
    return std::ranges::any_of(parameters_, &spec::ParameterSpec::trainable);
}

std::vector<ShardPiece> Unit::pieces(std::int64_t begin, std::int64_t count) const {
    std::vector<ShardPiece> found;
    for (std::size_t i = 0; i < placements_.size(); ++i) {
        const Placement& p = placements_[i];
        const std::int64_t first = std::max(p.offset, begin);
        const std::int64_t last = std::min(p.offset + p.numel, begin + count);
        if (first < last) found.push_back({i, first - p.offset, first - begin, last - first});
    }
    std::ranges::sort(found, {}, &ShardPiece::shard_begin);
    return found;
}

std::int64_t Layout::numel() const {
    return std::accumulate(units.begin(), units.end(), std::int64_t{0},
                           [](std::int64_t sum, const Unit& unit) { return sum + unit.numel(); });
}

std::int64_t Layout::largest_trainable_shard() const {
    std::int64_t largest = 0;
    for (const Unit& unit : units) {
        if (unit.trainable()) largest = std::max(largest, unit.shard_numel());
    }
    return largest;
}

std::int64_t Layout::padded() const {
    return std::accumulate(units.begin(), units.end(), std::int64_t{0},
                           [](std::int64_t sum, const Unit& unit) { return sum + unit.padded(); });
}

std::vector<std::int64_t> Layout::units_of_segment(std::size_t segment) const {
    std::set<std::int64_t> found;
    for (const std::size_t stage : segments[segment]) {
        for (const ParameterHome& home : homes[stage]) {
            found.insert(static_cast<std::int64_t>(home.unit));
        }
    }
    return {found.begin(), found.end()};
}

Layout make_layout(const spec::ModelSpec& model, std::int64_t shards, const Wrap& wrap) {
    Layout layout{shards, {}, wrap_stages(model, wrap), {}};
    layout.homes.resize(model.stages.size());
    Homes homes;
    for (const auto& stages : layout.segments) {
        std::vector<spec::ParameterSpec> parameters;
        for (const std::size_t stage : stages) {
            for (const spec::ParameterSpec& parameter : model.stages[stage].parameters) {
                const bool tied = !parameter.tied_to.empty();
                layout.homes[stage].push_back(
                    tied ? homes.tied(parameter)
                         : homes.own(parameter, {layout.units.size(), parameters.size()}));
                if (!tied) parameters.push_back(parameter);
            }
        }
        if (parameters.empty()) continue;
        layout.units.emplace_back(unit_name(model, stages), stages, std::move(parameters), shards);
    }
    return layout;
}

std::int64_t SlotPlan::numel() const {
    return slots.empty() ? 0 : slots.back().offset + slots.back().numel;
}

SlotPlan make_slot_plan(const Layout& layout, std::int64_t slots_per_class,
                        const std::vector<SlotNeed>& needs) {
    ensure(slots_per_class > 0, "a size class has at least one slot");
    ensure(needs.size() == layout.units.size(), "it is known of each unit what it needs");
    struct SizeClass {
        std::vector<std::size_t> slots;
        std::size_t units = 0;
    };
    std::map<std::int64_t, SizeClass> classes;
    SlotPlan plan;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        const Unit& unit = layout.units[i];
        if (needs[i] == SlotNeed::kNone) {
            plan.slot_of_unit.push_back(SlotPlan::kNoSlot);
            continue;
        }
        if (needs[i] == SlotNeed::kOwn) {
            plan.slot_of_unit.push_back(plan.slots.size());
            plan.slots.push_back({plan.numel(), unit.padded()});
            continue;
        }
        SizeClass& size_class = classes[unit.padded()];
        if (size_class.units < static_cast<std::size_t>(slots_per_class)) {
            size_class.slots.push_back(plan.slots.size());
            plan.slots.push_back({plan.numel(), unit.padded()});
        }
        plan.slot_of_unit.push_back(size_class.slots[size_class.units % size_class.slots.size()]);
        ++size_class.units;
    }
    return plan;
}

}  // namespace fullshard::shard
