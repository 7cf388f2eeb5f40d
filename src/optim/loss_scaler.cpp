#include "optim/loss_scaler.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace fullshard::optim {
namespace {

bool power_of_two(double value) {
    int exponent = 0;
    return std::frexp(value, &exponent) == 0.5;
}

}  // namespace

LossScaler::LossScaler(const LossScalerOptions& options) : options_(options) {
    ensure(power_of_two(options.initial) && power_of_two(options.minimum) &&
               (options.fixed == 0 || power_of_two(options.fixed)),
           "loss scales are powers of two");
    ensure(options.initial >= options.minimum, "the first loss scale is not below the minimum");
    ensure(options.window >= 1 && options.hysteresis >= 1,
           "window and hysteresis of the loss scale are positive");
    state_ = {.scale = is_fixed() ? options.fixed : options.initial,
              .hysteresis_left = options.hysteresis};
}

void LossScaler::update(bool overflow) {
    if (!overflow) {
        const bool window_passed =
            state_.good_steps > 0 && state_.good_steps % options_.window == 0;
        ++state_.good_steps;
        if (window_passed && !is_fixed()) {
            state_.scale *= 2;
            state_.hysteresis_left = options_.hysteresis;
        }
        return;
    }
    if (!is_fixed()) {
        if (state_.hysteresis_left > 1) {
            --state_.hysteresis_left;
        } else if (state_.scale > options_.minimum) {
            state_.scale /= 2;
        } else {
            throw RunError(
                fmt::format("the loss scale is at its minimum of {} and gradients still overflow; "
                            "lower optimizer.lr or precision.min_scale, or use "
                            "precision.param = bf16",
                            options_.minimum),
                ExitCode::kDiverged);
        }
    }
    state_.good_steps = 0;
}

void LossScaler::restore(const LossScalerState& state) {
    ensure(power_of_two(state.scale), "loss scales are powers of two");
    ensure(state.good_steps >= 0 && state.hysteresis_left >= 1,
           "counts of a loss scaler's state are possible");
    state_.scale = is_fixed() ? options_.fixed : std::max(state.scale, options_.minimum);
    state_.good_steps = state.good_steps;
    state_.hysteresis_left = std::min(state.hysteresis_left, options_.hysteresis);
}

}  // namespace fullshard::optim
