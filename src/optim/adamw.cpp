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

AdamW::AdamW(const AdamWOptions& options, std::vector<OptimizerShard> shards,
             std::unique_ptr<StateDevice> device)
    : options_(options), device_(std::move(device)) {
    units_.reserve(shards.size());
    for (OptimizerShard& shard : shards) {
        const std::int64_t held = checked_end(shard.ranges, shard.param.count);
        ensure(shard.copy.count == 0 || shard.copy.count == shard.param.count,
               "a copy is as long as its shard");
        units_.push_back({.shard = std::move(shard),
                          .first_moment = device_->zeros(held),
                          .second_moment = device_->zeros(held)});
    }
}

void AdamW::step(std::int64_t index, const TypedSpan& gradient, double lr,
                 const GradientTreatment& treatment) {
    Unit& unit = units_.at(index);
    const OptimizerShard& shard = unit.shard;
    ensure(gradient.count == shard.param.count,
           "the gradient's shard is as long as the parameter's");
    ensure(unit.last_step < step_count_, "a unit is updated once in a step that has begun");
    unit.last_step = step_count_;
    for (StateReader* const reader : readers_) reader->finish_reading(index);

    for (const ShardRange& range : shard.ranges) {
        const auto part = [&range](const TypedSpan& span) {
            return span.part(range.begin, range.end - range.begin);
        };
        const auto scalars = kernels::adamw_scalars({.lr = lr * range.settings.lr_factor,
                                                     .beta1 = options_.beta1,
                                                     .beta2 = options_.beta2,
                                                     .eps = options_.eps,
                                                     .weight_decay = range.settings.weight_decay,
                                                     .step = step_count_,
                                                     .gradient_factor = treatment.factor,
                                                     .clip_value = treatment.clip_value});
        device_->update({.param = part(shard.param),
                         .gradient = part(gradient),
                         .first_moment = part(unit.first_moment),
                         .second_moment = part(unit.second_moment),
                         .copy = shard.copy.count > 0 ? part(shard.copy) : TypedSpan{}},
                        scalars);
    }
}

std::int64_t AdamW::state_bytes() const {
    std::int64_t elements = 0;
    for (const Unit& unit : units_) elements += unit.first_moment.count;
    return state_bytes(elements);
}

}  // namespace fullshard::optim
