#include "kernels/cross_entropy.h"

#include "base/error.h"
#include "kernels/cpu/simd_clones.h"
#include "kernels/elements/softmax.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

namespace fullshard::kernels {
namespace {

/// Element i of a row goes to running value i mod kLanes, whatever the width of vectors: sums then
/// have equal bits on all of them.
constexpr std::size_t kLanes = 64;
using Lanes = std::array<float, kLanes>;

/// NaN is passed over.
FULLSHARD_SIMD_CLONES
void largest_of_lanes(const float* __restrict logits, std::size_t count, float* __restrict lanes) {
    std::size_t first = 0;
    for (; first + kLanes <= count; first += kLanes) {
        for (std::size_t i = 0; i < kLanes; ++i) {
            const float logit = logits[first + i];
            lanes[i] = lanes[i] < logit ? logit : lanes[i];
        }
    }
    for (std::size_t i = 0; i < count - first; ++i) {
        const float logit = logits[first + i];
        lanes[i] = lanes[i] < logit ? logit : lanes[i];
    }
}

FULLSHARD_SIMD_CLONES
void sums_of_lanes(const float* __restrict logits, std::size_t count, float largest,
                   float* __restrict lanes) {
    std::size_t first = 0;
    for (; first + kLanes <= count; first += kLanes) {
        for (std::size_t i = 0; i < kLanes; ++i) {
            lanes[i] += probability(logits[first + i] - largest);
        }
    }
    for (std::size_t i = 0; i < count - first; ++i) {
        lanes[i] += probability(logits[first + i] - largest);
    }
}

FULLSHARD_SIMD_CLONES
void scale_probabilities(float* logits, std::size_t count, float log_sum, float factor) {
    for (std::size_t i = 0; i < count; ++i) logits[i] = probability(logits[i] - log_sum) * factor;
}

}  // namespace

float log_sum_exp(std::span<const float> logits) {
    ensure(!logits.empty(), "a row of logits has a class");
    Lanes lanes;
    lanes.fill(-std::numeric_limits<float>::infinity());
    largest_of_lanes(logits.data(), logits.size(), lanes.data());
    float largest = lanes[0];
    for (const float lane : lanes) largest = largest < lane ? lane : largest;

    lanes.fill(0);
    sums_of_lanes(logits.data(), logits.size(), largest, lanes.data());
    double sum = 0;
    for (const float lane : lanes) sum += lane;
    return static_cast<float>(std::log(sum) + largest);
}

void cross_entropy_gradient(std::span<float> logits, float log_sum, std::int64_t target,
                            float factor) {
    ensure(target >= 0 && target < static_cast<std::int64_t>(logits.size()),
           "a target is one of the classes");
    float& picked = logits[static_cast<std::size_t>(target)];
    const float of_target = (probability(picked - log_sum) - 1.0f) * factor;
    scale_probabilities(logits.data(), logits.size(), log_sum, factor);
    picked = of_target;
}

}  // namespace fullshard::kernels
