// Loss scaling for gradients of fp16.
#pragma once

#include <cstdint>

namespace fullshard::optim {

/// Scales are powers of two, so that scaling changes exponents only and 1 / scale is exact.
struct LossScalerOptions {
    double initial = 65536;
    std::int64_t window = 1000;   ///< steps without overflow in a row that let the scale double
    std::int64_t hysteresis = 2;  ///< overflows until the scale halves
    double minimum = 1;
    double fixed = 0;  ///< above 0: the scale at all times, whatever the other options say
};

/// What a run goes on from.
struct LossScalerState {
    double scale = 1;
    std::int64_t good_steps = 0;       ///< steps since the last overflow, or since the start
    std::int64_t hysteresis_left = 1;  ///< overflows until the next one halves, that one included

    friend bool operator==(const LossScalerState&, const LossScalerState&) = default;
};

/// Dynamic loss scaling in the rules of DeepSpeed's DynamicLossScaler (runtime/fp16/loss_scaler.py,
/// default `consecutive_hysteresis`):
///
///     overflow        hysteresis_left > 1:  one less of it, the scale stays
///                     else                  the scale halves, at its minimum: RunError
///     no overflow     good_steps is a positive multiple of window: the scale doubles and
///                     hysteresis_left is refilled; then one good step more
///
/// So the scale first doubles on good step window + 1 after the start or an overflow, and after a
/// decrease every further overflow halves at once until a window has passed.
///
/// Holds no communicator: ranks that pass equal flags hold equal states.
class LossScaler {
  public:
    /// Throws LogicError where scales are no powers of two, a count is below 1, or the initial
    /// scale is below the minimum.
    explicit LossScaler(const LossScalerOptions& options);

    /// What the loss of the coming step is multiplied by, and its gradients divided by.
    double scale() const { return state_.scale; }

    /// Ends a step: whether any gradient of any rank overflowed. Throws RunError (exit code
    /// kDiverged) and changes nothing where it did, at the minimum and without hysteresis left: a
    /// lower scale would not help.
    void update(bool overflow);

    const LossScalerState& state() const { return state_; }

    /// Goes on from `state` under these options: a fixed scale stays what it is, and neither the
    /// minimum nor the hysteresis is exceeded where they were changed. LogicError where the scale
    /// is no power of two or a count is impossible.
    void restore(const LossScalerState& state);

  private:
    bool is_fixed() const { return options_.fixed > 0; }

    LossScalerOptions options_;
    LossScalerState state_;
};

}  // namespace fullshard::optim
