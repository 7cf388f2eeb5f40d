#include "kernels/cross_entropy.h"

#include "base/error.h"
#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace fullshard::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// `scale` times normal numbers, all moved by `shift`.
std::vector<float> random_logits(std::size_t count, double scale, double shift) {
    const RandomStream stream(count);
    std::vector<float> logits(count);
    for (std::size_t i = 0; i < count; ++i) {
        logits[i] = static_cast<float>(shift + scale * stream.normal(i));
    }
    return logits;
}

double reference_log_sum(const std::vector<float>& logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
    return std::log(sum) + largest;
}

struct Shape {
    std::size_t classes;
    double scale;
    double shift;
};

// Rows shorter than the lanes of a sum, whole ones, and ones with a tail; flat and steep.
const Shape kShapes[] = {{1, 1, 3},       {2, 1, 0},     {63, 2, -5},  {64, 1, 0},     {65, 1, 0},
                         {1000, 30, 200}, {8192, 1, 10}, {8193, 5, 0}, {50257, 2, -40}};

TEST(CrossEntropy, LogSumAgreesWithDoublePrecision) {
    for (const auto& [classes, scale, shift] : kShapes) {
        const std::vector<float> logits = random_logits(classes, scale, shift);
        const double expected = reference_log_sum(logits);
        EXPECT_NEAR(log_sum_exp(logits), expected, 2e-7 * std::max(1.0, std::abs(expected)))
            << classes << " classes";
    }
}

TEST(CrossEntropy, GradientAgreesWithDoublePrecision) {
    const double factor = 0.125;
    for (const auto& [classes, scale, shift] : kShapes) {
        std::vector<float> logits = random_logits(classes, scale, shift);
        const std::vector<float> before = logits;
        const float log_sum = log_sum_exp(logits);
        const std::size_t target = classes / 2;
        cross_entropy_gradient(logits, log_sum, static_cast<std::int64_t>(target),
                               static_cast<float>(factor));
        const double exact_log_sum = reference_log_sum(before);
        for (std::size_t i = 0; i < classes; ++i) {
            const double exponent = before[i] - exact_log_sum;
            const double one_hot = i == target ? 1 : 0;
            // The roundings of the log sum and of the exponent are relative errors of the result.
            const double relative = 3e-7 + 1e-7 * (std::abs(exact_log_sum) + std::abs(exponent));
            const double tolerance = relative * std::exp(exponent) + 1e-7 * one_hot + 1e-30;
            ASSERT_NEAR(logits[i], (std::exp(exponent) - one_hot) * factor, tolerance * factor)
                << classes << " classes, class " << i;
        }
    }
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
    std::vector<float> logits{3e38f, -3e38f, 1e38f};
    const float log_sum = log_sum_exp(logits);
    EXPECT_EQ(log_sum, 3e38f);
    cross_entropy_gradient(logits, log_sum, 2, 2.0f);
    EXPECT_EQ(logits, (std::vector{2.0f, 0.0f, -2.0f}));
}

TEST(CrossEntropy, ProbabilitiesBelowTheRangeAreZero) {
    std::vector<float> logits{0.0f, -70.0f, -kInfinity, -68.0f};
    const float log_sum = log_sum_exp(logits);
    EXPECT_EQ(log_sum, 0.0f);
    cross_entropy_gradient(logits, log_sum, 0, 1.0f);
    EXPECT_EQ(logits[1], 0.0f);
    EXPECT_EQ(logits[2], 0.0f);
    EXPECT_NEAR(logits[3], std::exp(-68.0), 1e-6 * std::exp(-68.0));
}

// Wherever they are: the first lane, a whole block or the tail.
TEST(CrossEntropy, DivergedLogitsGiveNan) {
    for (const float bad : {kNan, kInfinity}) {
        for (const std::size_t place : {0, 40, 64, 129}) {
            std::vector<float> logits(130, 1.0f);
            logits[place] = bad;
            EXPECT_TRUE(std::isnan(log_sum_exp(logits))) << bad << " at " << place;
        }
    }
    EXPECT_TRUE(std::isnan(log_sum_exp(std::vector{kNan})));
}

TEST(CrossEntropy, RefusesEmptyRowsAndTargetsOutside) {
    std::vector<float> logits{1.0f, 2.0f};
    EXPECT_THROW(log_sum_exp({}), LogicError);
    EXPECT_THROW(cross_entropy_gradient(logits, 2.3f, 2, 1.0f), LogicError);
    EXPECT_THROW(cross_entropy_gradient(logits, 2.3f, -1, 1.0f), LogicError);
}

}  // namespace
}  // namespace fullshard::kernels
