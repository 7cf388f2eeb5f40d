#include "shard/layout.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace fullshard::shard {

namespace {
constexpr std::int64_t kParameterAlignment = 64;  // elements: 256 bytes of float32
constexpr std::int64_t kShardAlignment = 16;  // elements: shards end at a cache line of 64 bytes

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}
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

std::int64_t Layout::padded() const {
    return std::accumulate(units.begin(), units.end(), std::int64_t{0},
                           [](std::int64_t sum, const Unit& unit) { return sum + unit.padded(); });
}

Layout make_block_layout(const spec::ModelSpec& model, std::int64_t shards) {
    Layout layout{shards, {}};
    for (std::size_t i = 0; i < model.stages.size(); ++i) {
        const auto& stage = model.stages[i];
        layout.units.emplace_back(stage.name, std::vector{i}, stage.parameters, shards);
    }
    return layout;
}

std::int64_t SlotPlan::numel() const {
    return slots.empty() ? 0 : slots.back().offset + slots.back().numel;
}

SlotPlan make_slot_plan(const Layout& layout, std::int64_t slots_per_class) {
    ensure(slots_per_class > 0, "a size class has at least one slot");
    struct SizeClass {
        std::vector<std::size_t> slots;
        std::size_t units = 0;
    };
    std::map<std::int64_t, SizeClass> classes;
    SlotPlan plan;
    for (const Unit& unit : layout.units) {
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
