#include "train/step_decision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace fullshard::train {
namespace {

using config::OnNonfinite;
using Action = StepDecision::Action;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr StepFacts kFinite{.tokens = 10, .loss = 2.5, .grad_norm = 0.5};
constexpr StepFacts kOverflow{.tokens = 10, .loss = 2.5, .grad_norm = kInfinity};
constexpr StepFacts kNothing{.tokens = 0, .loss = kNan, .grad_norm = kNan};

optim::LossScalerOptions dynamic(double initial, std::int64_t hysteresis = 1) {
    optim::LossScalerOptions options;
    options.initial = initial;
    options.window = 2;
    options.hysteresis = hysteresis;
    options.minimum = 1.0;
    return options;
}

bool says(const StepDecision& decision, const std::string& part) {
    return decision.reason.find(part) != std::string::npos;
}

TEST(StepDecision, FiniteStepsUpdate) {
    for (const OnNonfinite policy : {OnNonfinite::kAbort, OnNonfinite::kSkip}) {
        StepJudge judge(policy, std::nullopt);
        EXPECT_EQ(judge.decide(kFinite), StepDecision{});
        EXPECT_EQ(judge.loss_scale(), 1.0);
        EXPECT_EQ(judge.scaler_state(), std::nullopt);
    }
}

TEST(StepDecision, NonFiniteLossOrNormAbortsOrSkipsAsTold) {
    for (const StepFacts& facts :
         {StepFacts{10, kNan, 0.5}, StepFacts{10, kInfinity, 0.5}, StepFacts{10, 2.5, kNan},
          StepFacts{10, 2.5, -kInfinity}, StepFacts{10, kNan, kNan}}) {
        const StepDecision abort = StepJudge(OnNonfinite::kAbort, std::nullopt).decide(facts);
        EXPECT_EQ(abort.action, Action::kAbort);
        EXPECT_TRUE(says(abort, "train.on_nonfinite")) << abort.reason;
        const StepDecision skip = StepJudge(OnNonfinite::kSkip, std::nullopt).decide(facts);
        EXPECT_EQ(skip.action, Action::kSkip);
        EXPECT_TRUE(
            says(skip, std::isfinite(facts.loss) ? "the gradient norm is " : "the loss is "))
            << skip.reason;
    }
}

TEST(StepDecision, StepWithoutTargetsIsSkippedWhateverThePolicy) {
    for (const OnNonfinite policy : {OnNonfinite::kAbort, OnNonfinite::kSkip}) {
        const StepDecision decision = StepJudge(policy, std::nullopt).decide(kNothing);
        EXPECT_EQ(decision.action, Action::kSkip);
        EXPECT_TRUE(says(decision, "no valid target")) << decision.reason;
    }
}

TEST(StepDecision, StepWithoutTargetsTellsTheScalerNothing) {
    StepJudge judge(OnNonfinite::kAbort, dynamic(8.0));
    const auto before = judge.scaler_state();
    EXPECT_EQ(judge.decide(kNothing).action, Action::kSkip);
    EXPECT_EQ(judge.scaler_state(), before);
}

TEST(StepDecision, OverflowUnderDynamicScalingSkipsAndHalves) {
    StepJudge judge(OnNonfinite::kAbort, dynamic(1024.0));
    const StepDecision decision = judge.decide(kOverflow);
    EXPECT_EQ(decision.action, Action::kSkip);
    EXPECT_TRUE(says(decision, "1024")) << decision.reason;
    EXPECT_TRUE(says(decision, "512")) << decision.reason;
    EXPECT_EQ(judge.loss_scale(), 512.0);
    EXPECT_EQ(judge.decide(kFinite).action, Action::kUpdate);
    EXPECT_EQ(judge.loss_scale(), 512.0);
}

TEST(StepDecision, HysteresisAbsorbsTheFirstOverflow) {
    StepJudge judge(OnNonfinite::kAbort, dynamic(1024.0, /*hysteresis=*/2));
    EXPECT_TRUE(says(judge.decide(kOverflow), "the loss scale 1024, which stays for once"));
    EXPECT_EQ(judge.loss_scale(), 1024.0);
    EXPECT_EQ(judge.decide(kOverflow).action, Action::kSkip);
    EXPECT_EQ(judge.loss_scale(), 512.0);
}

TEST(StepDecision, GoodStepsRaiseTheScale) {
    StepJudge judge(OnNonfinite::kAbort, dynamic(4.0));
    for (int step = 0; step < 3; ++step) EXPECT_EQ(judge.decide(kFinite).action, Action::kUpdate);
    EXPECT_EQ(judge.loss_scale(), 8.0);
}

TEST(StepDecision, OverflowAtTheMinimumAborts) {
    StepJudge judge(OnNonfinite::kSkip, dynamic(2.0));
    EXPECT_EQ(judge.decide(kOverflow).action, Action::kSkip);
    EXPECT_EQ(judge.loss_scale(), 1.0);
    const StepDecision decision = judge.decide(kOverflow);
    EXPECT_EQ(decision.action, Action::kAbort);
    EXPECT_TRUE(says(decision, "precision.min_scale")) << decision.reason;
    EXPECT_TRUE(says(decision, "precision.param = bf16")) << decision.reason;
}

TEST(StepDecision, FixedScaleStaysAndThePolicyDecides) {
    optim::LossScalerOptions fixed;
    fixed.fixed = 128.0;
    StepJudge abort(OnNonfinite::kAbort, fixed);
    EXPECT_EQ(abort.loss_scale(), 128.0);
    const StepDecision decision = abort.decide(kOverflow);
    EXPECT_EQ(decision.action, Action::kAbort);
    EXPECT_TRUE(says(decision, "precision.loss_scale")) << decision.reason;
    StepJudge skip(OnNonfinite::kSkip, fixed);
    EXPECT_EQ(skip.decide(kOverflow).action, Action::kSkip);
    EXPECT_EQ(skip.loss_scale(), 128.0);
    EXPECT_EQ(skip.scaler_state(), std::nullopt);
}

TEST(StepDecision, RestoredScalerGoesOnWhereItStood) {
    StepJudge first(OnNonfinite::kAbort, dynamic(1024.0, /*hysteresis=*/2));
    first.decide(kOverflow);
    StepJudge second(OnNonfinite::kAbort, dynamic(4.0, /*hysteresis=*/2));
    second.restore(first.scaler_state().value());
    EXPECT_EQ(second.loss_scale(), 1024.0);
    for (const StepFacts& facts : {kOverflow, kFinite, kFinite, kFinite, kOverflow, kFinite}) {
        EXPECT_EQ(second.decide(facts), first.decide(facts));
        EXPECT_EQ(second.scaler_state(), first.scaler_state());
    }
    // A run that does not scale any more has nothing to restore.
    StepJudge plain(OnNonfinite::kAbort, std::nullopt);
    plain.restore(first.scaler_state().value());
    EXPECT_EQ(plain.loss_scale(), 1.0);
}

}  // namespace
}  // namespace fullshard::train
