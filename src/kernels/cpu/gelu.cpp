#include "kernels/gelu.h"

#include "base/error.h"
#include "kernels/cpu/simd_clones.h"
#include "kernels/elements/exp.h"

#include <cstddef>

namespace fullshard::kernels {
namespace {

constexpr float kCubic = 0.044715f;
constexpr float kTwiceSqrt2OverPi = 1.5957691216057308f;

/// Where 2 u is still in the range of vector_exp(). GELU is x or 0 to all digits beyond it.
constexpr float kBound = 9.99f;

// Comparisons that are false for NaN keep it.
[[gnu::always_inline]] inline float raised(float x) {
    return x < -kBound ? -kBound : x;
}
[[gnu::always_inline]] inline float clamped(float x) {
    const float low = raised(x);
    return low > kBound ? kBound : low;
}

/// exp(-2 u).
[[gnu::always_inline]] inline float exp_of_argument(float x) {
    return vector_exp(-kTwiceSqrt2OverPi * (x + kCubic * (x * x * x)));
}

FULLSHARD_SIMD_CLONES
void forward(const float* __restrict x, float* __restrict out, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        // Not x itself above the line: vector code works out both sides of a comparison for all
        // elements, and small ones over the denominator at -kBound are subnormal numbers, which
        // cost a hundred cycles each.
        out[i] = raised(x[i]) / (1.0f + exp_of_argument(clamped(x[i])));
    }
}

FULLSHARD_SIMD_CLONES
void backward(const float* __restrict x, float* __restrict gradient, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        // s + x s (1 - s) d(2 u)/dx with the logistic function s of 2 u; 1 - s = exp(-2 u) s.
        const float value = clamped(x[i]);
        const float power = exp_of_argument(value);
        const float s = 1.0f / (1.0f + power);
        const float slope = kTwiceSqrt2OverPi * (1.0f + 3.0f * kCubic * (value * value));
        gradient[i] = gradient[i] * (s + value * slope * (power * s * s));
    }
}

}  // namespace

void tanh_gelu(std::span<const float> x, std::span<float> out) {
    ensure(x.size() == out.size(), "input and output of GELU have equal sizes");
    forward(x.data(), out.data(), x.size());
}

void tanh_gelu_backward(std::span<const float> x, std::span<float> gradient) {
    ensure(x.size() == gradient.size(), "input and gradient of GELU have equal sizes");
    backward(x.data(), gradient.data(), x.size());
}

}  // namespace fullshard::kernels
