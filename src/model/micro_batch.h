// One micro-batch as the model sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fullshard::model {

struct MicroBatch {
    at::Tensor tokens;   ///< int64 [batch, sequence]
    at::Tensor targets;  ///< int64 [batch, sequence]; kIgnoredTarget where no prediction counts
    /// The summed loss is multiplied by this: 1 / (valid targets of the whole step), so that micro-
    /// batches with fewer valid targets weigh less and the sum over all of them is the mean.
    double loss_factor = 1.0;
    /// Gradients are those of the loss times this (loss scaling of fp16); the loss itself is not.
    double loss_scale = 1.0;
    bool training = true;  ///< dropout is active
    /// int64 [batch, sequence]: each token's position in its document. Undefined: 0, 1, ... in each
    /// row.
    at::Tensor positions = {};
    /// Tokens of the longest document, one more than the largest position; of given positions only.
    std::int64_t longest_document = 0;
    /// bool [batch, 1, sequence, sequence]: which tokens (last) each token sees. Undefined: what
    /// the model's own rule says (all, or itself and those before).
    at::Tensor attention_mask = {};

    static constexpr std::int64_t kIgnoredTarget = -1;
};

/// The mask in which each token sees its own document only, and of that, if `causal`, itself and
/// those before. `documents` are numbers, int64 [batch, sequence].
at::Tensor document_mask(const at::Tensor& documents, bool causal);

}  // namespace fullshard::model
