// The arithmetic of AdamW on one element, the same for the CPU's vector loop and for CUDA.
#pragma once

#include "kernels/adamw.h"
#include "kernels/elements/host_device.h"

#include <cmath>

namespace fullshard::kernels {

struct AdamWElement {
    float param;
    float first_moment;
    float second_moment;
};

/// The element after the update; kernels/adamw.h has the formula. Each operation is rounded, so it
/// must not be compiled into fused multiply-adds.
FULLSHARD_HOST_DEVICE AdamWElement updated(const AdamWElement& old, float gradient,
                                           const AdamWScalars& c) {
    // lerp starts from the nearer end, as PyTorch's does: m + w (g - m), or g - (1 - w) (g - m).
    const bool from_gradient = c.one_minus_beta1 >= 0.5f;
    const float weight = from_gradient ? -c.beta1 : c.one_minus_beta1;
    // Comparisons that are false for NaN keep it.
    float g = gradient * c.gradient_factor;
    g = c.clip_value < g ? c.clip_value : g;
    g = -c.clip_value > g ? -c.clip_value : g;
    const float start = from_gradient ? g : old.first_moment;
    const float first = start + weight * (g - old.first_moment);
    const float second = old.second_moment * c.beta2 + c.one_minus_beta2 * g * g;
    const float denominator = std::sqrt(second) / c.sqrt_bias_correction2 + c.eps;
    const float param = old.param * c.decay_factor + c.negative_step_size * first / denominator;
    return {param, first, second};
}

}  // namespace fullshard::kernels
