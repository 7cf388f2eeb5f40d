// Learning-rate schedules.
#pragma once

#include <cstdint>

namespace fullshard::optim {

enum class ScheduleKind : std::uint8_t { kConstant, kLinear, kCosine };

/// A learning rate as a pure function of the optimizer step, so that a resumed run continues it.
struct Schedule {
    ScheduleKind kind = ScheduleKind::kConstant;
    double lr = 1e-3;               ///< peak
    std::int64_t warmup_steps = 0;  ///< length of the linear rise; 0: none
    std::int64_t total_steps = 0;   ///< step at which the decay ends; the constant kind ignores it
    double min_lr_ratio = 0;        ///< lowest rate of the decay, as a fraction of lr
};

/// The learning rate of optimizer step t, counted from 0. With w = warmup_steps, T = total_steps,
/// r = min_lr_ratio and the progress p = (t - w) / (T - w):
///
///     t < w           lr * (t + 1) / w
///     constant        lr
///     linear          lr * (r + (1 - r) * (1 - p))
///     cosine          lr * (r + (1 - r) * (1 + cos(pi * p)) / 2)
///     decay, t >= T   lr * r
///
/// Step w is the first of the decay and has p = 0, so the peak is reached whatever w is, and the
/// last step of a run, T - 1, still has a rate above the lowest one.
double learning_rate(const Schedule& schedule, std::int64_t step);

}  // namespace fullshard::optim
