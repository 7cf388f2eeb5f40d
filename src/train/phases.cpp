#include "train/phases.h"

#include <string>

namespace fullshard::train {

std::string_view name_of(Phase phase) {
    static constexpr std::array<std::string_view, kPhases> kNames{
        "other",  "data",      "unshard",    "forward",    "backward",
        "reduce", "optimizer", "evaluation", "checkpoint", "log"};
    return kNames.at(static_cast<std::size_t>(phase));
}

namespace {

/// Waits for parameters and gradients lie in the lanes of those.
Lane lane_of(Phase phase) {
    switch (phase) {
        case Phase::kForward:
        case Phase::kBackward:
            return Lane::kCompute;
        case Phase::kUnshard:
            return Lane::kGather;
        case Phase::kReduce:
            return Lane::kReduce;
        case Phase::kOptimizer:
            return Lane::kOptimizer;
        case Phase::kCheckpoint:
            return Lane::kCheckpoint;
        case Phase::kOther:
        case Phase::kData:
        case Phase::kEvaluation:
        case Phase::kLog:
            break;
    }
    return Lane::kOther;
}

std::string title(Phase phase, std::string_view what) {
    std::string text(name_of(phase));
    if (!what.empty()) text.append(" ").append(what);
    return text;
}

}  // namespace

void PhaseClock::switch_to(Phase phase, std::string_view what) {
    const double now = now_seconds();
    if (timeline_ != nullptr && current_ != Phase::kOther && timeline_->recording()) {
        timeline_->add({lane_of(current_), title(current_, what_), last_, now});
    }
    seconds_[static_cast<std::size_t>(current_)] += now - last_;
    last_ = now;
    current_ = phase;
    what_ = what;
}

const std::array<double, kPhases>& PhaseClock::seconds() {
    switch_to(current_, what_);
    return seconds_;
}

}  // namespace fullshard::train
