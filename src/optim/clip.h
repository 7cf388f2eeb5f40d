// Clipping by the global norm of the gradients.
#pragma once

namespace fullshard::optim {

/// What gradients of global norm `norm` are multiplied by so that it becomes `max_norm` at most, in
/// the formula of torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)). 1 where
/// `max_norm` is 0, which means no clipping. A NaN norm gives NaN.
inline double clip_coefficient(double norm, double max_norm) {
    if (max_norm == 0) return 1;
    const double coefficient = max_norm / (norm + 1e-6);
    return coefficient > 1 ? 1 : coefficient;
}

}  // namespace fullshard::optim
