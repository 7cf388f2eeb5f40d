#include "optim/schedule.h"

#include <cmath>
#include <numbers>

namespace fullshard::optim {
namespace {

// The fraction of the peak that is left at progress p in [0, 1), without the floor.
double decay(ScheduleKind kind, double p) {
    switch (kind) {
        case ScheduleKind::kLinear:
            return 1.0 - p;
        case ScheduleKind::kCosine:
            return (1.0 + std::cos(std::numbers::pi * p)) / 2.0;
        case ScheduleKind::kConstant:
            break;
    }
    return 1.0;
}

}  // namespace

double learning_rate(const Schedule& s, std::int64_t step) {
    if (step < s.warmup_steps) {
        return s.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup_steps);
    }
    if (s.kind == ScheduleKind::kConstant) return s.lr;
    if (step >= s.total_steps) return s.lr * s.min_lr_ratio;
    const double progress = static_cast<double>(step - s.warmup_steps) /
                            static_cast<double>(s.total_steps - s.warmup_steps);
    return s.lr * (s.min_lr_ratio + (1.0 - s.min_lr_ratio) * decay(s.kind, progress));
}

}  // namespace fullshard::optim
