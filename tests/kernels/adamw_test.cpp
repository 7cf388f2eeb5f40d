#include "kernels/adamw.h"

#include "base/error.h"
#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace fullshard::kernels {
namespace {

/// Parameters, moments and the gradients of some steps, all from one key.
struct State {
    std::vector<float> param, m, v;

    explicit State(std::vector<float> values) : param(std::move(values)), m(param.size()), v(m) {}

    void update(std::span<const float> gradient, const AdamWScalars& scalars) {
        adamw_update(param, gradient, m, v, scalars);
    }
};

std::vector<float> normals(std::uint64_t key, std::size_t count, double scale) {
    const RandomStream stream(key);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(scale * stream.normal(i));
    return values;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void expect_relative(const std::vector<float>& actual, const std::vector<float>& expected,
                     double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        EXPECT_NEAR(actual[i], expected[i], tolerance * std::abs(expected[i])) << "element " << i;
    }
}

// Expected values: tests/kernels/adamw_golden.py.
TEST(AdamWUpdate, AgreesWithPyTorch) {
    struct Case {
        AdamWSettings settings;
        std::vector<float> param, m, v;
    };
    const Case cases[] = {
        {{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1},
         {0.976278305f, -0.498992473f, 0.225429609f, 1.97305191f, -0.00638960628f},
         {0.0542500019f, 0.0997500047f, 1.60999989e-05f, 0.133000016f, 0.100000001f},
         {0.000327609654f, 0.000874625053f, 5.99400113e-11f, 0.0139810089f, 0.00100000005f}},
        {{.lr = 1e-2, .beta1 = 0.4, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.0},
         {0.983005702f, -0.507819176f, 0.229423359f, 1.9862529f, -0.01082779f},
         {0.167999998f, 0.546000004f, -2.40000509e-06f, -0.671999991f, 0.600000024f},
         {0.0151484376f, 0.0428203121f, 2.8512499e-09f, 0.653625011f, 0.0500000007f}}};
    const std::vector<float> gradients[] = {{0.5f, -0.25f, 1e-4f, 3.0f, 1e-12f},
                                            {-0.125f, 0.5f, 2e-4f, 1.0f, 0.0f},
                                            {0.25f, 0.75f, -1e-4f, -2.0f, 1.0f}};
    for (const Case& expected : cases) {
        State state({1.0f, -0.5f, 0.25f, 2.0f, 0.0f});
        AdamWSettings settings = expected.settings;
        for (settings.step = 1; settings.step <= 3; ++settings.step) {
            state.update(gradients[settings.step - 1], adamw_scalars(settings));
        }
        expect_relative(state.param, expected.param, 1e-6);
        // The third element's first moment nearly cancels where beta1 is small.
        expect_relative(state.m, expected.m, 1e-5);
        expect_relative(state.v, expected.v, 1e-6);
    }
}

// Moments as sums over all past gradients in double, instead of the recurrence in float.
TEST(AdamWUpdate, FollowsTheClosedFormOfTheMoments) {
    constexpr std::size_t kCount = 257;
    constexpr int kSteps = 6;
    const AdamWSettings base{
        .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.2};
    State state(normals(1, kCount, 1.0));
    std::vector<double> param(state.param.begin(), state.param.end());
    std::vector<std::vector<float>> gradients;
    for (int step = 1; step <= kSteps; ++step) {
        gradients.push_back(normals(10 + step, kCount, 0.1));
        AdamWSettings settings = base;
        settings.step = step;
        state.update(gradients.back(), adamw_scalars(settings));
        for (std::size_t i = 0; i < kCount; ++i) {
            double m = 0, v = 0;
            for (int s = 1; s <= step; ++s) {
                const double g = gradients[s - 1][i];
                m += (1 - base.beta1) * std::pow(base.beta1, step - s) * g;
                v += (1 - base.beta2) * std::pow(base.beta2, step - s) * g * g;
            }
            const double m_hat = m / (1 - std::pow(base.beta1, step));
            const double v_hat = v / (1 - std::pow(base.beta2, step));
            param[i] -=
                base.lr * (base.weight_decay * param[i] + m_hat / (std::sqrt(v_hat) + base.eps));
            EXPECT_NEAR(state.param[i], param[i], 1e-6) << "step " << step << " element " << i;
            EXPECT_NEAR(state.m[i], m, 1e-7);
            EXPECT_NEAR(state.v[i], v, 1e-8);
        }
    }
}

// The same operations one by one, compiled for the baseline instruction set like all tests: equal
// bits show that neither vectors nor fused multiply-adds changed a rounding, nor a gradient factor
// of 1 and a clip value of infinity a gradient.
TEST(AdamWUpdate, VectorCodeGivesTheBitsOfScalarCode) {
    for (const double beta1 : {0.9, 0.3}) {
        State state(normals(1, 1031, 1.0));
        State expected = state;
        for (int step = 1; step <= 4; ++step) {
            auto gradient = normals(20 + step, 1031, 1e-3);
            gradient[3] = -0.0f;
            gradient[4] = std::numeric_limits<float>::denorm_min();
            gradient[1030] = -std::numeric_limits<float>::max();
            const auto c =
                adamw_scalars({.lr = 1e-3, .beta1 = beta1, .weight_decay = 0.1, .step = step});
            state.update(gradient, c);
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                float& p = expected.param[i];
                float& m = expected.m[i];
                float& v = expected.v[i];
                const float g = gradient[i];
                p = p * c.decay_factor;
                m = beta1 > 0.5 ? m + c.one_minus_beta1 * (g - m) : g - (g - m) * c.beta1;
                v = v * c.beta2;
                v = v + c.one_minus_beta2 * g * g;
                float denominator = std::sqrt(v);
                denominator = denominator / c.sqrt_bias_correction2;
                denominator = denominator + c.eps;
                p = p + c.negative_step_size * m / denominator;
            }
        }
        EXPECT_TRUE(equal_bits(state.param, expected.param)) << beta1;
        EXPECT_TRUE(equal_bits(state.m, expected.m)) << beta1;
        EXPECT_TRUE(equal_bits(state.v, expected.v)) << beta1;
    }
}

// Factor and clamp in front of the kernel, in plain loops, against the kernel's own.
TEST(AdamWUpdate, FactorAndClipValueActOnTheGradientFirst) {
    struct Case {
        double factor, clip_value;
    };
    for (const auto& [factor, clip_value] :
         {Case{0.25, HUGE_VAL}, Case{1, 1e-3}, Case{0.3 / 65536, 2e-8}}) {
        State state(normals(1, 1031, 1.0));
        State expected = state;
        std::int64_t clamped = 0;
        for (int step = 1; step <= 3; ++step) {
            const auto gradient = normals(40 + step, 1031, 2e-3);
            AdamWSettings settings{.lr = 1e-3, .weight_decay = 0.1, .step = step};
            auto treated = gradient;
            const auto bound = static_cast<float>(clip_value);
            for (float& g : treated) {
                g *= static_cast<float>(factor);
                clamped += std::abs(g) > bound ? 1 : 0;
                g = std::clamp(g, -bound, bound);
            }
            expected.update(treated, adamw_scalars(settings));
            settings.gradient_factor = factor;
            settings.clip_value = clip_value;
            state.update(gradient, adamw_scalars(settings));
        }
        EXPECT_EQ(clamped > 0, std::isfinite(clip_value));
        EXPECT_TRUE(equal_bits(state.param, expected.param)) << factor << ' ' << clip_value;
        EXPECT_TRUE(equal_bits(state.m, expected.m));
        EXPECT_TRUE(equal_bits(state.v, expected.v));
    }
}

TEST(AdamWUpdate, FirstStepWithFactorAndClipValueInClosedForm) {
    const std::vector<float> gradient{8.0f, -8.0f, 1.0f, -0.5f, 0.0f};
    State state(std::vector<float>(5, 1.0f));
    state.update(gradient, adamw_scalars({.lr = 1e-2, .gradient_factor = 0.5, .clip_value = 2}));
    const float treated[] = {2.0f, -2.0f, 0.5f, -0.25f, 0.0f};
    for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_FLOAT_EQ(state.m[i], 0.1f * treated[i]);
        EXPECT_FLOAT_EQ(state.v[i], 0.001f * treated[i] * treated[i]);
        EXPECT_NEAR(state.param[i], 1 - 1e-2 * treated[i] / (std::abs(double{treated[i]}) + 1e-8),
                    1e-7);
    }
}

TEST(AdamWUpdate, ClippingDoesNotHideNan) {
    State state(std::vector<float>(9, 1.0f));
    std::vector<float> gradient(9, 100.0f);
    gradient[2] = gradient[8] = std::numeric_limits<float>::quiet_NaN();
    state.update(gradient, adamw_scalars({.lr = 1e-2, .clip_value = 1}));
    for (std::size_t i = 0; i < 9; ++i) {
        EXPECT_EQ(std::isnan(state.m[i]), i == 2 || i == 8) << i;
    }
}

TEST(AdamWUpdate, EqualBitsForAnyCut) {
    constexpr std::size_t kCount = 1031;
    State whole(normals(1, kCount, 1.0)), cut = whole;
    for (int step = 1; step <= 3; ++step) {
        const auto gradient = normals(30 + step, kCount, 1.0);
        const auto scalars = adamw_scalars({.lr = 1e-3, .weight_decay = 0.1, .step = step});
        whole.update(gradient, scalars);
        std::size_t begin = 0;
        for (const std::size_t length : {1, 2, 15, 17, 500, 33, 0, 463}) {
            const auto part = [&](auto& values) {
                return std::span(values).subspan(begin, length);
            };
            adamw_update(part(cut.param), part(gradient), part(cut.m), part(cut.v), scalars);
            begin += length;
        }
        ASSERT_EQ(begin, kCount);
    }
    EXPECT_TRUE(equal_bits(whole.param, cut.param));
    EXPECT_TRUE(equal_bits(whole.m, cut.m));
    EXPECT_TRUE(equal_bits(whole.v, cut.v));
}

TEST(AdamWScalars, AreRoundedOnceFromDouble) {
    const auto c = adamw_scalars(
        {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1, .step = 1});
    // In float, 1 - 0.999f is off by 1.3e-5 of its value.
    EXPECT_EQ(c.one_minus_beta2, 0.001f);
    EXPECT_EQ(c.one_minus_beta1, 0.1f);
    EXPECT_EQ(c.decay_factor, 0.9999f);
    EXPECT_FLOAT_EQ(c.negative_step_size, -0.01f);
    EXPECT_FLOAT_EQ(c.sqrt_bias_correction2, std::sqrt(0.001f));
}

TEST(AdamWUpdate, RefusesUnequalSizes) {
    State state({1.0f, 2.0f});
    EXPECT_THROW(state.update(std::vector{1.0f}, adamw_scalars({})), LogicError);
}

}  // namespace
}  // namespace fullshard::kernels
