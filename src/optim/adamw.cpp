#include "optim/adamw.h"

#include "base/error.h"
#include "kernels/adamw.h"

#include <algorithm>
#include <utility>

namespace fullshard::optim {
namespace {

// Returns the end of the last range. An overlap would update elements twice without any other sign.
std::int64_t checked_end(std::vector<ShardRange> ranges, std::int64_t shard_size) {
    std::ranges::sort(ranges, {}, &ShardRange::begin);
    std::int64_t covered = 0;
    for (const ShardRange& range : ranges) {
        ensure(range.begin >= covered, "ranges of a shard do not overlap");
        ensure(range.begin <= range.end && range.end <= shard_size,
               "ranges lie within their shard");
        covered = range.end;
    }
    return covered;
}

}  // namespace

AdamW::AdamW(const AdamWOptions& options, std::vector<OptimizerShard> shards) : options_(options) {
    units_.reserve(shards.size());
    for (OptimizerShard& shard : shards) {
        const auto held = static_cast<std::size_t>(
            checked_end(shard.ranges, static_cast<std::int64_t>(shard.param.size())));
        units_.push_back({.param = shard.param,
                          .ranges = std::move(shard.ranges),
                          .first_moment = std::vector<float>(held),
                          .second_moment = std::vector<float>(held)});
    }
}

void AdamW::step(std::int64_t index, std::span<const float> gradient, double lr,
                 const GradientTreatment& treatment) {
    Unit& unit = units_.at(index);
    ensure(gradient.size() == unit.param.size(),
           "the gradient's shard is as long as the parameter's");
    ensure(unit.last_step < step_count_, "a unit is updated once in a step that has begun");
    unit.last_step = step_count_;
    for (StateReader* const reader : readers_) reader->finish_reading(index);

    for (const ShardRange& range : unit.ranges) {
        const auto part = [&range](auto span) {
            return span.subspan(range.begin, range.end - range.begin);
        };
        const auto scalars = kernels::adamw_scalars({.lr = lr * range.settings.lr_factor,
                                                     .beta1 = options_.beta1,
                                                     .beta2 = options_.beta2,
                                                     .eps = options_.eps,
                                                     .weight_decay = range.settings.weight_decay,
                                                     .step = step_count_,
                                                     .gradient_factor = treatment.factor,
                                                     .clip_value = treatment.clip_value});
        kernels::adamw_update(part(unit.param), part(gradient), part(std::span(unit.first_moment)),
                              part(std::span(unit.second_moment)), scalars);
    }
}

std::int64_t AdamW::state_bytes() const {
    std::int64_t elements = 0;
    for (const Unit& unit : units_) {
        elements += static_cast<std::int64_t>(unit.first_moment.size());
    }
    return state_bytes(elements);
}

}  // namespace fullshard::optim
