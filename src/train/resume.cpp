#include "train/resume.h"

#include "base/error.h"
#include "config/compare.h"
#include "config/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace fullshard::train {

namespace {

/// What a changed key does to a resumed run.
enum class Effect : std::uint8_t { kNone, kOtherNumbers, kForbidden };

Effect effect_of(std::string_view key) {
    // The starting weights were used up by the first step.
    if (key == "model.init_from") return Effect::kNone;
    constexpr std::array kForbiddenKeys{"model.", "data.", "run.seed", "train.global_batch"};
    constexpr std::array kOtherNumbersKeys{"optimizer.", "schedule.",         "kernels.",
                                           "reduce.",    "train.micro_batch", "train.steps"};
    const auto matches = [&](std::string_view prefix) { return key.starts_with(prefix); };
    if (std::ranges::any_of(kForbiddenKeys, matches)) return Effect::kForbidden;
    if (std::ranges::any_of(kOtherNumbersKeys, matches)) return Effect::kOtherNumbers;
    return Effect::kNone;
}

}  // namespace

std::vector<std::string> check_resumable(const config::Deck& deck,
                                         const checkpoint::Manifest& manifest) {
    const config::Deck before = config::parse(manifest.effective_deck, "the checkpoint's deck", {});
    std::string mistakes;
    std::vector<std::string> notes;
    for (const config::Difference& difference : config::differences(before, deck)) {
        const Effect effect = effect_of(difference.key);
        const std::string text =
            fmt::format("{} was {} and is {}", difference.key, difference.before, difference.after);
        if (effect == Effect::kForbidden) mistakes += "\n  " + text;
        // More steps change a schedule that ends with them, and nothing else.
        if (difference.key == "train.steps" &&
            deck.schedule.kind == config::ScheduleKind::kConstant)
            continue;
        if (effect == Effect::kOtherNumbers) notes.push_back(text);
    }
    if (!mistakes.empty()) {
        throw UsageError(
            "the run cannot go on from this checkpoint; set these keys back, or start a new run "
            "with checkpoint.resume = never (and model.init_from for the weights alone):" +
            mistakes);
    }
    return notes;
}

}  // namespace fullshard::train
