// The branch of a transformer block that works on each token alone.
#pragma once

#include "model/linear.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fullshard::model {

enum class Activation : std::uint8_t {
    kRelu,
    kGelu,
    kTanhGelu,  ///< the approximation that GPT-2 uses
};

/// linear2(dropout(activation(linear1(x)))) as one autograd function. The hidden activations are a
/// stage's largest tensors; with ReLU they exist once, since its derivative and the dropout mask
/// can be read from the result. GELU keeps its input and the mask besides.
struct FeedForward {
    Linear linear1;  ///< d_model to d_ff, with a bias
    Linear linear2;  ///< d_ff to d_model, with a bias
    Activation activation;

    /// [rows, d_model] to the same shape; drops hidden activations with probability `dropout`.
    at::Tensor forward(const at::Tensor& x, double dropout) const;
};

/// down(silu(gate(x)) * up(x)) as one autograd function (Shazeer, 2020). It keeps the results of
/// gate and up and computes their product again in the backward pass.
struct SwiGlu {
    Linear gate;  ///< d_model to d_ff, without a bias, as the others
    Linear up;    ///< d_model to d_ff
    Linear down;  ///< d_ff to d_model

    /// [rows, d_model] to the same shape.
    at::Tensor forward(const at::Tensor& x) const;
};

}  // namespace fullshard::model
