#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace fullshard::optim {
namespace {

constexpr ScheduleKind kKinds[] = {ScheduleKind::kConstant, ScheduleKind::kLinear,
                                   ScheduleKind::kCosine};

Schedule schedule(ScheduleKind kind, std::int64_t warmup, std::int64_t total, double floor) {
    return {.kind = kind,
            .lr = 2e-3,
            .warmup_steps = warmup,
            .total_steps = total,
            .min_lr_ratio = floor};
}

TEST(Schedule, WarmUpIsLinearAndReachesThePeakForAllKinds) {
    for (const ScheduleKind kind : kKinds) {
        const Schedule s = schedule(kind, 10, 100, 0.1);
        EXPECT_DOUBLE_EQ(learning_rate(s, 0), 2e-4);
        EXPECT_DOUBLE_EQ(learning_rate(s, 4), 1e-3);
        EXPECT_DOUBLE_EQ(learning_rate(s, 9), 2e-3);
        EXPECT_DOUBLE_EQ(learning_rate(s, 10), 2e-3);
    }
}

TEST(Schedule, StartsAtThePeakWithoutWarmUp) {
    for (const ScheduleKind kind : kKinds) {
        EXPECT_DOUBLE_EQ(learning_rate(schedule(kind, 0, 100, 0.0), 0), 2e-3);
    }
}

TEST(Schedule, ConstantStaysAndIgnoresTheTotal) {
    const Schedule s = schedule(ScheduleKind::kConstant, 3, 5, 0.1);
    for (const std::int64_t step : {3, 5, 1000}) EXPECT_EQ(learning_rate(s, step), 2e-3);
}

TEST(Schedule, LinearFallsByEqualAmounts) {
    const Schedule s = schedule(ScheduleKind::kLinear, 10, 110, 0.25);
    EXPECT_DOUBLE_EQ(learning_rate(s, 60), 2e-3 * (0.25 + 0.75 * 0.5));
    EXPECT_DOUBLE_EQ(learning_rate(s, 109), 2e-3 * (0.25 + 0.75 * 0.01));
    for (std::int64_t step = 10; step < 110; ++step) {
        EXPECT_NEAR(learning_rate(s, step) - learning_rate(s, step + 1), 2e-3 * 0.75 / 100, 1e-15);
    }
}

TEST(Schedule, CosineTakesItsClosedFormValues) {
    const Schedule s = schedule(ScheduleKind::kCosine, 10, 110, 0.1);
    const auto with_floor = [](double fraction) { return 2e-3 * (0.1 + 0.9 * fraction); };
    EXPECT_DOUBLE_EQ(learning_rate(s, 10 + 25), with_floor((1 + std::sqrt(0.5)) / 2));
    EXPECT_DOUBLE_EQ(learning_rate(s, 10 + 50), with_floor(0.5));
    EXPECT_DOUBLE_EQ(learning_rate(s, 10 + 75), with_floor((1 - std::sqrt(0.5)) / 2));
    // Symmetric about its middle.
    for (std::int64_t k = 1; k < 50; ++k) {
        EXPECT_NEAR(learning_rate(s, 60 - k) + learning_rate(s, 60 + k), 2 * with_floor(0.5),
                    1e-15);
    }
}

TEST(Schedule, DecayEndsAtTheFloorAndStaysThere) {
    for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
        for (const double floor : {0.0, 0.1}) {
            const Schedule s = schedule(kind, 10, 110, floor);
            EXPECT_GT(learning_rate(s, 109), 2e-3 * floor);
            EXPECT_EQ(learning_rate(s, 110), 2e-3 * floor);
            EXPECT_EQ(learning_rate(s, 5000), 2e-3 * floor);
        }
    }
}

TEST(Schedule, AllWarmUpAndNoDecay) {
    for (const ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine}) {
        const Schedule s = schedule(kind, 8, 8, 0.5);
        EXPECT_EQ(learning_rate(s, 7), 2e-3);
        EXPECT_EQ(learning_rate(s, 8), 1e-3);
    }
}

}  // namespace
}  // namespace fullshard::optim
