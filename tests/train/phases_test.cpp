#include "train/phases.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace fullshard::train {
namespace {

void spend() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

double of(PhaseClock& clock, Phase phase) {
    return clock.seconds()[static_cast<std::size_t>(phase)];
}

TEST(PhaseClock, InnerPhasePausesTheOuterOne) {
    PhaseClock clock;
    {
        const auto forward = clock.enter(Phase::kForward);
        const auto unshard = clock.enter(Phase::kUnshard);
        spend();
    }
    EXPECT_GE(of(clock, Phase::kUnshard), 0.02);
    EXPECT_LT(of(clock, Phase::kForward), 0.02);
}

TEST(PhaseClock, EverythingInsideAnEvaluationBelongsToIt) {
    PhaseClock clock;
    {
        const auto evaluation = clock.enter(Phase::kEvaluation);
        const auto forward = clock.enter(Phase::kForward);
        spend();
    }
    spend();
    EXPECT_GE(of(clock, Phase::kEvaluation), 0.02);
    EXPECT_EQ(of(clock, Phase::kForward), 0.0);
    EXPECT_GE(of(clock, Phase::kOther), 0.02);
}

}  // namespace
}  // namespace fullshard::train
