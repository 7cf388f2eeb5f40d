// Parts of the softmax cross-entropy of a row that many threads share.
#pragma once

#include "kernels/elements/exp.h"
#include "kernels/elements/host_device.h"

#include <cmath>
#include <cstddef>
#include <limits>

namespace fullshard::kernels {

/// e^-69 is 1e-30: far below the rounding of any sum of probabilities, and no subnormal number,
/// which would cost a CPU a hundred cycles, once it is multiplied by a factor.
inline constexpr float kLeastExponent = -69.0f;

/// e^x for x <= 0 or a rounding error more; 0 below kLeastExponent. NaN for NaN.
FULLSHARD_HOST_DEVICE float probability(float x) {
    const float power = vector_exp(x < kLeastExponent ? kLeastExponent : x);
    return x < kLeastExponent ? 0.0f : power;
}

/// sum_i exp(logits[i]) of some logits as sum * exp(largest), in one pass (Milakov and Gimelshein,
/// "Online normalizer calculation for softmax", 2018). Empty, or of logits that all are -infinity:
/// largest is -infinity and the sum 0. NaN of a logit, or infinity, makes the sum NaN.
struct SoftmaxSum {
    float largest = -std::numeric_limits<float>::infinity();
    float sum = 0.0f;

    template <std::size_t kCount>
    FULLSHARD_HOST_DEVICE void add(const float (&logits)[kCount]) {
        float larger = largest;
        for (const float logit : logits) larger = larger < logit ? logit : larger;
        const float base = base_of(larger);
        if (largest < larger) {
            sum *= probability(largest - base);
            largest = larger;
        }
        for (const float logit : logits) sum += probability(logit - base);
    }

    /// Does not depend on the order of the two.
    FULLSHARD_HOST_DEVICE void add(const SoftmaxSum& other) {
        const float larger = largest < other.largest ? other.largest : largest;
        const float base = base_of(larger);
        sum = sum * probability(largest - base) + other.sum * probability(other.largest - base);
        largest = larger;
    }

    FULLSHARD_HOST_DEVICE float log_sum_exp() const {
        return static_cast<float>(std::log(double{sum}) + double{largest});
    }

  private:
    /// -infinity minus itself would be no number.
    FULLSHARD_HOST_DEVICE static float base_of(float larger) {
        return larger == -std::numeric_limits<float>::infinity() ? 0.0f : larger;
    }
};

/// The gradient of `factor` times the row's cross-entropy by one of its logits.
FULLSHARD_HOST_DEVICE float logit_gradient(float logit, float log_sum, bool is_target,
                                           float factor) {
    const float p = probability(logit - log_sum);
    return (is_target ? p - 1.0f : p) * factor;
}

}  // namespace fullshard::kernels
