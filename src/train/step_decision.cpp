#include "train/step_decision.h"

#include "base/error.h"

#include <fmt/format.h>

#include <cmath>

namespace fullshard::train {

namespace {

using Action = StepDecision::Action;

/// What is not finite; of a loss that is not, the gradient cannot be.
std::string finding(const StepFacts& facts) {
    return std::isfinite(facts.loss) ? fmt::format("the gradient norm is {}", facts.grad_norm)
                                     : fmt::format("the loss is {}", facts.loss);
}

}  // namespace

StepJudge::StepJudge(config::OnNonfinite on_nonfinite,
                     const std::optional<optim::LossScalerOptions>& scaling)
    : on_nonfinite_(on_nonfinite), dynamic_(scaling && scaling->fixed == 0) {
    if (scaling) scaler_.emplace(*scaling);
}

StepDecision StepJudge::decide(const StepFacts& facts) {
    if (facts.tokens == 0) return {Action::kSkip, "the batch has no valid target"};
    if (!std::isfinite(facts.loss) || !std::isfinite(facts.grad_norm)) {
        return dynamic_ ? decide_overflow(facts) : decide_nonfinite(facts);
    }
    if (scaler_) scaler_->update(/*overflow=*/false);
    return {};
}

StepDecision StepJudge::decide_nonfinite(const StepFacts& facts) {
    if (on_nonfinite_ == config::OnNonfinite::kSkip) return {Action::kSkip, finding(facts)};
    const std::string remedy =
        scaler_
            ? fmt::format("lower precision.loss_scale from {}, or set it to 0 for a dynamic one",
                          scaler_->scale())
            : "lower optimizer.lr or raise schedule.warmup_steps";
    return {Action::kAbort,
            fmt::format("{}; {}, or set train.on_nonfinite = skip", finding(facts), remedy)};
}

StepDecision StepJudge::decide_overflow(const StepFacts& facts) {
    const double scale = scaler_->scale();
    try {
        scaler_->update(/*overflow=*/true);
    } catch (const RunError& at_minimum) {
        return {Action::kAbort, fmt::format("{}: {}", finding(facts), at_minimum.what())};
    }
    const std::string now = scaler_->scale() == scale
                                ? "which stays for once"
                                : fmt::format("which is {} now", scaler_->scale());
    return {Action::kSkip,
            fmt::format("{} under the loss scale {}, {}", finding(facts), scale, now)};
}

std::optional<optim::LossScalerState> StepJudge::scaler_state() const {
    if (!dynamic_) return std::nullopt;
    return scaler_->state();
}

void StepJudge::restore(const optim::LossScalerState& state) {
    if (dynamic_) scaler_->restore(state);
}

}  // namespace fullshard::train
