// Softmax cross-entropy of one row of fp32 logits.
#pragma once

#include <cstdint>
#include <span>

namespace fullshard::kernels {

/// log(sum_i exp(logits[i])). The cross-entropy of a row is this minus the target's logit. No
/// finite logits overflow; NaN when one is NaN or +infinity. Errors are below
/// 2e-7 max(1, |result|). LogicError for an empty row.
float log_sum_exp(std::span<const float> logits);

/// Replaces the logits by the gradient of `factor` times the row's cross-entropy:
///
///     (exp(logits[i] - log_sum) - [i = target]) * factor
///
/// `log_sum` is the row's log_sum_exp(). Probabilities below 1e-30 count as 0. LogicError for a
/// target outside of the row.
void cross_entropy_gradient(std::span<float> logits, float log_sum, std::int64_t target,
                            float factor);

}  // namespace fullshard::kernels
