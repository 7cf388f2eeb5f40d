#include "train/update.h"

#include <gtest/gtest.h>

#include <limits>

namespace fullshard::train {
namespace {

TEST(Treatment, OfAnUnscaledUnclippedGradientChangesNoBit) {
    const auto treatment = treatment_of(3.0, 1.0, {});
    EXPECT_EQ(treatment.factor, 1.0);
    EXPECT_EQ(treatment.clip_value, std::numeric_limits<double>::infinity());
    // Within the limit, too.
    EXPECT_EQ(treatment_of(3.0, 1.0, {.norm = 4.0}).factor, 1.0);
}

TEST(Treatment, OneFactorUndoesTheScaleAndClipsTheUnscaledNorm) {
    EXPECT_EQ(treatment_of(3.0, 1024.0, {}).factor, 1.0 / 1024.0);
    // torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6).
    EXPECT_EQ(treatment_of(3.0, 1.0, {.norm = 1.5}).factor, 1.5 / (3.0 + 1e-6));
    EXPECT_EQ(treatment_of(3.0, 1024.0, {.norm = 1.5}).factor, 1.5 / (3.0 + 1e-6) / 1024.0);
}

TEST(Treatment, ByValueIsAfterTheFactor) {
    const auto treatment = treatment_of(3.0, 8.0, {.value = 0.5});
    EXPECT_EQ(treatment.factor, 0.125);
    EXPECT_EQ(treatment.clip_value, 0.5);
}

}  // namespace
}  // namespace fullshard::train
