#include "optim/clip.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fullshard::optim {
namespace {

TEST(ClipCoefficient, BringsLargeNormsToTheMaximum) {
    EXPECT_DOUBLE_EQ(clip_coefficient(4.0, 1.0), 1.0 / (4.0 + 1e-6));
    EXPECT_NEAR(4.0 * clip_coefficient(4.0, 1.0), 1.0, 1e-6);
    EXPECT_DOUBLE_EQ(clip_coefficient(1.0, 1.0), 1.0 / (1.0 + 1e-6));
    EXPECT_EQ(clip_coefficient(HUGE_VAL, 1.0), 0.0);
}

TEST(ClipCoefficient, NeverEnlarges) {
    for (const double norm : {0.0, 1e-30, 0.5, 1.0 - 2e-6}) {
        EXPECT_EQ(clip_coefficient(norm, 1.0), 1.0) << norm;
    }
}

TEST(ClipCoefficient, IsOffAtZero) {
    for (const double norm : {0.0, 1.0, 1e30}) EXPECT_EQ(clip_coefficient(norm, 0.0), 1.0);
}

TEST(ClipCoefficient, PassesNanOn) {
    EXPECT_TRUE(std::isnan(clip_coefficient(NAN, 1.0)));
}

}  // namespace
}  // namespace fullshard::optim
