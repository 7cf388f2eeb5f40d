#include "train/phases.h"

namespace fullshard::train {

std::string_view name_of(Phase phase) {
    static constexpr std::array<std::string_view, kPhases> kNames{
        "other",  "data",      "unshard",    "forward",    "backward",
        "reduce", "optimizer", "evaluation", "checkpoint", "log"};
    return kNames.at(static_cast<std::size_t>(phase));
}

void PhaseClock::switch_to(Phase phase) {
    const double now = now_seconds();
    seconds_[static_cast<std::size_t>(current_)] += now - last_;
    last_ = now;
    current_ = phase;
}

const std::array<double, kPhases>& PhaseClock::seconds() {
    switch_to(current_);
    return seconds_;
}

}  // namespace fullshard::train
