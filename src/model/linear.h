// Linear layers whose backward pass writes weight gradients straight into their sinks.
#pragma once

#include "model/parameter.h"
#include "spec/simple_transformer.h"

#include <ATen/core/Tensor.h>

namespace fullshard::model {

/// Whether the CPU has instructions for products of the type. Results differ in bits between those
/// that have and those that have not.
bool multiplies(at::ScalarType type);

/// A matrix as products of the library's read it best: itself, or its values in fp32 where the CPU
/// has no instructions for its 16-bit type. The library's loops for those take 3 to 80 times as
/// long as fp32 products, conversions included; both round each element of a product once.
at::Tensor operand(const at::Tensor& matrix);

/// y = x W^T + b.
struct Linear {
    Parameter weight;  ///< [out, in]
    Parameter bias;    ///< [out]

    /// [rows, in] to [rows, out].
    at::Tensor forward(const at::Tensor& x) const;
};

/// Writes or adds grad_output^T x, both operand()s: the gradient of a linear layer's weight.
void write_weight_gradient(const GradientTarget& target, const at::Tensor& grad_output,
                           const at::Tensor& x);
/// Writes or adds the sum over the rows of `grad_output`: the gradient of a linear layer's bias.
void write_bias_gradient(const GradientTarget& target, const at::Tensor& grad_output);

/// linear2(dropout(activation(linear1(x)))) as one autograd function. The hidden activations are a
/// stage's largest tensors; with ReLU they exist once, since its derivative and the dropout mask
/// can be read from the result. GELU keeps its input and the mask besides.
struct FeedForward {
    Linear linear1;  ///< d_model to d_ff
    Linear linear2;  ///< d_ff to d_model
    spec::Activation activation;

    /// [rows, d_model] to the same shape; drops hidden activations with probability `dropout`.
    at::Tensor forward(const at::Tensor& x, double dropout) const;
};

}  // namespace fullshard::model
