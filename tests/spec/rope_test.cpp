// Frequencies of rotary positions against values that follow from the published formulas by hand.
// tests/model compares whole models with transformers.
#include "spec/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace fullshard::spec {
namespace {

using Scaling = Rope::Scaling;

std::vector<float> frequencies(const Rope& rope, std::int64_t head_size,
                               std::int64_t sequence = 1) {
    return rope_table(rope, head_size, sequence).frequencies;
}

TEST(RopeTable, WithoutScalingIsAGeometricSeries) {
    const auto table = rope_table({.theta = 10'000.0}, 8, 1);
    EXPECT_EQ(table.magnitude, 1.0);
    ASSERT_EQ(table.frequencies.size(), 4U);
    const double expected[] = {1.0, 0.1, 0.01, 0.001};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(table.frequencies[i], float(expected[i]));
}

TEST(RopeTable, LinearScalingDividesAllFrequencies) {
    const auto plain = frequencies({}, 16);
    const auto scaled = frequencies({.scaling = Scaling::kLinear, .factor = 4.0}, 16);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 4.0F);
}

TEST(RopeTable, DynamicScalingBeginsBehindTheOriginalLength) {
    const Rope rope{.scaling = Scaling::kDynamic, .factor = 2.0, .original_positions = 64};
    const auto plain = frequencies({}, 8);
    EXPECT_EQ(frequencies(rope, 8, 64), plain);
    // At twice the length the base grows by (2 * 2 - 1)^(8 / 6).
    const auto longer = frequencies(rope, 8, 128);
    const double theta = 10'000.0 * std::pow(3.0, 8.0 / 6.0);
    for (std::size_t i = 0; i < plain.size(); ++i)
        EXPECT_FLOAT_EQ(longer[i], float(std::pow(theta, -2.0 * double(i) / 8.0)));
    // The slowest pair is the one that is stretched by the factor itself: 3 = 2 * 2 - 1.
    EXPECT_FLOAT_EQ(longer.back(), plain.back() / 3.0F);
    EXPECT_EQ(longer.front(), 1.0F);
}

TEST(RopeTable, Llama3KeepsFastPairsAndStretchesSlowOnes) {
    // Llama 3.1: wavelengths below 8192 / 4 stay, those above 8192 / 1 are 8 times as long.
    const Rope rope{.theta = 500'000.0,
                    .scaling = Scaling::kLlama3,
                    .factor = 8.0,
                    .original_positions = 8192,
                    .low_freq_factor = 1.0,
                    .high_freq_factor = 4.0};
    const auto plain = frequencies({.theta = rope.theta}, 128);
    const auto scaled = frequencies(rope, 128);
    int between = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
        const double wavelength = 2.0 * std::numbers::pi / plain[i];
        if (wavelength < 8192.0 / 4.0) {
            EXPECT_EQ(scaled[i], plain[i]) << i;
        } else if (wavelength > 8192.0) {
            EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8.0F) << i;
        } else {
            ++between;
            const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
            EXPECT_FLOAT_EQ(scaled[i], float((1.0 - smooth) * plain[i] / 8.0 + smooth * plain[i]));
        }
    }
    EXPECT_GT(between, 3);
}

TEST(RopeTable, YarnRampsBetweenWholePairsAndWarmsAttention) {
    const Rope rope{.scaling = Scaling::kYarn, .factor = 4.0, .original_positions = 4096};
    const auto plain = frequencies({}, 128);
    const auto table = rope_table(rope, 128, 1);
    EXPECT_DOUBLE_EQ(table.magnitude, 0.1 * std::log(4.0) + 1.0);
    // Pair 128 ln(4096 / (turns 2 pi)) / (2 ln 10000): 20.9 for 32 turns, 45.03 for one.
    for (std::size_t i = 0; i < plain.size(); ++i) {
        const double stretched = i <= 20 ? 0.0 : i >= 46 ? 1.0 : (double(i) - 20.0) / 26.0;
        EXPECT_FLOAT_EQ(table.frequencies[i],
                        float(plain[i] / 4.0 * stretched + plain[i] * (1.0 - stretched)))
            << i;
    }
}

TEST(RopeTable, AGivenAttentionFactorTakesThePlaceOfTheFormula) {
    const Rope rope{.scaling = Scaling::kYarn,
                    .factor = 4.0,
                    .original_positions = 4096,
                    .attention_factor = 0.75};
    EXPECT_EQ(rope_table(rope, 128, 1).magnitude, 0.75);
}

}  // namespace
}  // namespace fullshard::spec
