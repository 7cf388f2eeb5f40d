#include "kernels/gelu.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

namespace fullshard::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// 1 + tanh(u) without its cancellation, as the logistic function of 2 u.
double logistic(double x) {
    const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 1 / (1 + std::exp(-2 * u));
}

double derivative(double x) {
    const double slope = 2 * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
    return logistic(x) + x * slope * logistic(x) * logistic(-x);
}

/// From -60 to 60, close to each other where GELU bends.
std::vector<float> arguments() {
    std::vector<float> values;
    for (int i = -120'000; i <= 120'000; ++i) values.push_back(static_cast<float>(i) * 1e-4f);
    for (int i = -600; i <= 600; ++i) values.push_back(static_cast<float>(i) * 0.1f);
    return values;
}

TEST(TanhGelu, AgreesWithDoublePrecision) {
    const std::vector<float> x = arguments();
    std::vector<float> out(x.size());
    tanh_gelu(x, out);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double error = std::abs(out[i] - x[i] * logistic(x[i]));
        worst = std::max(worst, error / std::max(1.0, std::abs(double{x[i]})));
    }
    EXPECT_LT(worst, 2e-7);
}

TEST(TanhGelu, DerivativeAgreesWithDoublePrecision) {
    const std::vector<float> x = arguments();
    std::vector<float> gradient(x.size(), 2.0f);
    tanh_gelu_backward(x, gradient);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        worst = std::max(worst, std::abs(gradient[i] / 2 - derivative(x[i])));
    }
    EXPECT_LT(worst, 1e-6);
}

TEST(TanhGelu, TheReferenceIsTheFormulaWithTanh) {
    for (const double x : {-3.0, -0.5, 0.0, 0.25, 1.0, 2.5}) {
        const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
        EXPECT_NEAR(x * logistic(x), x / 2 * (1 + std::tanh(u)), 1e-15);
        const double step = 1e-5;
        const double difference =
            ((x + step) * logistic(x + step) - (x - step) * logistic(x - step)) / (2 * step);
        EXPECT_NEAR(derivative(x), difference, 1e-9);
    }
}

TEST(TanhGelu, ValuesFarOutAndNonFiniteOnes) {
    const std::vector<float> x{1e4f, 1e30f, -1e4f, -1e30f, kInfinity, kNan, 0.0f, -kInfinity};
    std::vector<float> out(x.size()), slope(x.size(), 1.0f);
    tanh_gelu(x, out);
    tanh_gelu_backward(x, slope);
    EXPECT_EQ(out[0], 1e4f);
    EXPECT_EQ(out[1], 1e30f);
    EXPECT_NEAR(out[2], 0, 1e-30);
    EXPECT_NEAR(out[3], 0, 1e-30);
    EXPECT_EQ(out[4], kInfinity);
    EXPECT_TRUE(std::isnan(out[5]));
    EXPECT_EQ(out[6], 0);
    EXPECT_NEAR(out[7], 0, 1e-30);
    EXPECT_EQ(slope[0], 1);
    EXPECT_EQ(slope[1], 1);
    EXPECT_NEAR(slope[2], 0, 1e-30);
    EXPECT_NEAR(slope[3], 0, 1e-30);
    EXPECT_TRUE(std::isnan(slope[5]));
    EXPECT_EQ(slope[6], 0.5f);
}

// Vector bodies and scalar tails alike.
TEST(TanhGelu, EqualBitsForEveryCut) {
    std::vector<float> x = arguments();
    x.resize(1003);
    std::vector<float> out(x.size()), slope(x.size(), 0.3f);
    tanh_gelu(x, out);
    tanh_gelu_backward(x, slope);
    for (const std::size_t piece : {1, 3, 7, 64}) {
        std::vector<float> out_cut(x.size()), slope_cut(x.size(), 0.3f);
        for (std::size_t i = 0; i < x.size(); i += piece) {
            const std::size_t count = std::min(piece, x.size() - i);
            const auto part = std::span<const float>(x).subspan(i, count);
            tanh_gelu(part, std::span(out_cut).subspan(i, count));
            tanh_gelu_backward(part, std::span(slope_cut).subspan(i, count));
        }
        EXPECT_EQ(out, out_cut) << piece;
        EXPECT_EQ(slope, slope_cut) << piece;
    }
}

TEST(TanhGelu, RefusesUnequalSizes) {
    std::vector<float> three(3), two(2);
    EXPECT_THROW(tanh_gelu(three, two), LogicError);
    EXPECT_THROW(tanh_gelu_backward(three, two), LogicError);
}

}  // namespace
}  // namespace fullshard::kernels
