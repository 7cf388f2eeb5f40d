// Whether a step's gradient may change the parameters.
#pragma once

#include "config/deck.h"
#include "optim/loss_scaler.h"

#include <cstdint>
#include <optional>
#include <string>

namespace fullshard::train {

/// What is known about a step before its update. Equal on all ranks, so that each of them comes to
/// the same decision and nobody waits for anybody.
struct StepFacts {
    std::int64_t tokens = 0;  ///< valid targets of the step
    double loss = 0.0;        ///< without the loss scale, as the norm
    double grad_norm = 0.0;
};

struct StepDecision {
    enum class Action : std::uint8_t {
        kUpdate,
        kSkip,   ///< neither Adam's count nor the schedule advance
        kAbort,  ///< the training has diverged
    };
    Action action = Action::kUpdate;
    std::string reason = {};  ///< a clause for people; empty for an update

    friend bool operator==(const StepDecision&, const StepDecision&) = default;
};

/// Decides about one step after the other, and owns the loss scale, which depends on them.
class StepJudge {
  public:
    /// Without `scaling` losses are not scaled. Dynamic scaling deals with what is not finite by
    /// itself: `on_nonfinite` is for all other runs.
    StepJudge(config::OnNonfinite on_nonfinite,
              const std::optional<optim::LossScalerOptions>& scaling);

    /// The factor of the next step's losses; 1 where they are not scaled.
    double loss_scale() const { return scaler_ ? scaler_->scale() : 1.0; }

    /// A step without valid targets is skipped. A loss or norm that is not finite means under
    /// dynamic scaling that this step is skipped and the scale is lowered, unless it is at its
    /// minimum: then, and else as on_nonfinite says, the run aborts.
    StepDecision decide(const StepFacts& facts);

    /// Of dynamic scaling, for checkpoints; none for any other run.
    std::optional<optim::LossScalerState> scaler_state() const;
    /// Goes on from there; without dynamic scaling does nothing.
    void restore(const optim::LossScalerState& state);

  private:
    StepDecision decide_nonfinite(const StepFacts& facts);
    StepDecision decide_overflow(const StepFacts& facts);

    config::OnNonfinite on_nonfinite_;
    bool dynamic_;
    std::optional<optim::LossScaler> scaler_;
};

}  // namespace fullshard::train
