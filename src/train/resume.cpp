#include "train/resume.h"

#include "base/error.h"
#include "config/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace fullshard::train {

namespace {

/// What a changed key does to a resumed run.
enum class Effect : std::uint8_t { kNone, kOtherNumbers, kForbidden };

Effect effect_of(std::string_view key, const config::Deck& deck) {
    const auto is_in = [&](const auto& prefixes) {
        return std::ranges::any_of(prefixes,
                                   [&](std::string_view p) { return key.starts_with(p); });
    };
    // Used up by the first step, seen in other keys, or without effect on a run's numbers.
    constexpr std::array kFreeKeys{
        "model.init_from",    "model.init_deviation", "model.config",  "precision.initial_scale",
        "train.on_nonfinite", "data.prefetch",        "data.tokenizer"};
    constexpr std::array kForbiddenKeys{"model.", "data.", "run.seed", "train.global_batch"};
    constexpr std::array kOtherNumbersKeys{"optimizer.", "schedule.",  "kernels.",
                                           "reduce.",    "precision.", "train.micro_batch",
                                           "train.steps"};
    // What decides the order of summation where it is not the one tree.
    constexpr std::array kUnderFastKeys{"shard.", "topology.", "comm.node_shared",
                                        "train.grad_accum_steps"};
    if (is_in(kFreeKeys)) return Effect::kNone;
    // Then the user is told of each tensor that does not fit.
    if (!deck.checkpoint.load_strict && key.starts_with("model.")) return Effect::kOtherNumbers;
    if (is_in(kForbiddenKeys)) return Effect::kForbidden;
    if (is_in(kOtherNumbersKeys)) return Effect::kOtherNumbers;
    if (deck.reduce.order == config::ReduceOrder::kFast && is_in(kUnderFastKeys))
        return Effect::kOtherNumbers;
    return Effect::kNone;
}

}  // namespace

Changes changes_between(const config::Deck& before, const config::Deck& after) {
    Changes changes;
    for (const config::Difference& difference : config::differences(before, after)) {
        const Effect effect = effect_of(difference.key, after);
        const std::string text =
            fmt::format("{} was {} and is {}", difference.key, difference.before, difference.after);
        if (effect == Effect::kForbidden) changes.forbidden.push_back(text);
        // More steps change a schedule that ends with them, and nothing else.
        if (difference.key == "train.steps" &&
            after.schedule.kind == config::ScheduleKind::kConstant)
            continue;
        if (effect == Effect::kOtherNumbers) changes.other_numbers.push_back(text);
    }
    return changes;
}

std::vector<std::string> check_resumable(const config::Deck& before, const config::Deck& after) {
    Changes changes = changes_between(before, after);
    if (!changes.forbidden.empty()) {
        throw UsageError(fmt::format(
            "the run cannot go on from this checkpoint; set these keys back, or start a new run "
            "with checkpoint.resume = never (and model.init_from for the weights alone):\n  {}",
            fmt::join(changes.forbidden, "\n  ")));
    }
    return std::move(changes.other_numbers);
}

}  // namespace fullshard::train
