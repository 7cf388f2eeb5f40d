// GELU in its tanh formula, on fp32 memory.
#pragma once

#include <span>

namespace fullshard::kernels {

/// The approximation of GELU that GPT-2 uses (Hendrycks and Gimpel, "Gaussian Error Linear Units",
/// 2016):
///
///     out = x / 2 (1 + tanh(u)) = x / (1 + exp(-2 u)),   u = sqrt(2 / pi) (x + 0.044715 x^3)
///
/// The second form has no cancellation. Errors are below 2e-7 max(|x|, 1). Infinity gives infinity,
/// -infinity 0, NaN gives NaN. `x` and `out` have equal sizes (else LogicError) and do not overlap.
/// Each element depends on its own index alone: any cut of a range into several calls gives equal
/// bits.
void tanh_gelu(std::span<const float> x, std::span<float> out);

/// Multiplies `gradient` by the derivative of tanh_gelu() at `x`; errors of the derivative are
/// below 1e-6. Sizes and cuts as there.
void tanh_gelu_backward(std::span<const float> x, std::span<float> gradient);

}  // namespace fullshard::kernels
