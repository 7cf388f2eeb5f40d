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
        const bool enqueues = device_ && current_ != Phase::kCheckpoint;
        timeline_->add({enqueues ? Lane::kOther : lane_of(current_),
                        (enqueues ? "host: " : "") + title(current_, what_), last_, now});
    }
    seconds_[static_cast<std::size_t>(current_)] += now - last_;
    last_ = now;
    if (device_ && (phase != current_ || what != what_)) show_on_device(phase, what);
    current_ = phase;
    what_ = what;
}

void PhaseClock::show_on_device(Phase phase, std::string_view what) {
    computing_.end();
    for (; ranges_ > 0; --ranges_) device_->device->pop_range();
    if (phase == Phase::kOther) return;
    device_->device->push_range(name_of(phase));
    ++ranges_;
    if (!what.empty()) {
        device_->device->push_range(what);
        ++ranges_;
    }
    const Lane lane = lane_of(phase);
    if (lane != Lane::kCompute && lane != Lane::kOptimizer) return;
    computing_ = device_->spans->record(
        *device_->stream, lane, [&] { return title(phase, what); }, /*in_flight=*/false);
}

const std::array<double, kPhases>& PhaseClock::seconds() {
    switch_to(current_, what_);
    return seconds_;
}

}  // namespace fullshard::train
