// AdamW on flat fp32 memory.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace fullshard::kernels {

/// Hyper-parameters of one update. `step` counts updates from 1, as the bias corrections need it.
struct AdamWSettings {
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    std::int64_t step = 1;
    double gradient_factor = 1;  ///< clip coefficient over loss scale; 1 changes no bit
    double clip_value = std::numeric_limits<double>::infinity();  ///< bound of |g|; infinity: off
};

/// The constants of one update as the element loop uses them: computed in double, as PyTorch does,
/// then rounded once.
struct AdamWScalars {
    float decay_factor;           ///< 1 - lr * weight_decay
    float one_minus_beta1;        ///< weight of the gradient in the first moment
    float beta1;                  ///< weight of the old first moment, used for beta1 <= 0.5
    float beta2;                  ///< weight of the old second moment
    float one_minus_beta2;        ///< weight of the squared gradient in the second moment
    float negative_step_size;     ///< -lr / (1 - beta1^step)
    float sqrt_bias_correction2;  ///< sqrt(1 - beta2^step)
    float eps;
    float gradient_factor;  ///< multiplies the gradient before anything else
    float clip_value;       ///< then it is clamped to [-clip_value, clip_value]
};

AdamWScalars adamw_scalars(const AdamWSettings& settings);

/// One AdamW update (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019) in
/// the formula and order of PyTorch's torch.optim.AdamW, all in fp32, in one pass over memory:
///
///     g      = clamp(gradient_factor * g, -clip_value, clip_value)
///     param *= 1 - lr * weight_decay
///     m      = lerp(m, g, 1 - beta1)
///     v      = beta2 * v + (1 - beta2) * g * g
///     param -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
///
/// The first line takes the gradient as it was summed, scaled and not yet clipped; it leaves the
/// bits of every gradient alone at factor 1 and clip value infinity, and a NaN is never clamped.
///
/// All four spans have equal sizes (else LogicError) and do not overlap. Each element depends on
/// its own index alone: any cut of a range into several calls gives equal bits.
void adamw_update(std::span<float> param, std::span<const float> gradient,
                  std::span<float> first_moment, std::span<float> second_moment,
                  const AdamWScalars& scalars);

}  // namespace fullshard::kernels
