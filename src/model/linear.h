// Linear layers whose backward pass writes weight gradients straight into their sinks.
#pragma once

#include "kernels/gemm.h"
#include "model/parameter.h"
#include "model/parameter_list.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace fullshard::model {

/// Whether the CPU has instructions for products of the type. Results differ in bits between those
/// that have and those that have not.
bool multiplies(at::ScalarType type);

/// A matrix as products of the library's read it best: itself, or its values in fp32 where a CPU
/// has no instructions for its 16-bit type. The library's loops for those take 3 to 80 times as
/// long as fp32 products, conversions included; both round each element of a product once.
at::Tensor operand(const at::Tensor& matrix);

/// y = x W^T + b.
struct Linear {
    const kernels::Gemm* gemm;           ///< multiplies fp32 matrices; outlives the layer
    Parameter weight;                    ///< [out, in]
    std::optional<Parameter> bias = {};  ///< [out]

    /// [rows, in] to [rows, out].
    at::Tensor forward(const at::Tensor& x) const;
    /// What autograd functions take for the bias.
    std::optional<at::Tensor> bias_value() const;
};

/// A linear layer whose bias follows its weight in the spec.
Linear take_linear(ParameterList& parameters, std::int64_t out, std::int64_t in);
/// One without a bias.
Linear take_matrix(ParameterList& parameters, std::int64_t out, std::int64_t in);

/// out = left right, or out += left right; all of one type: fp32 on the CPU by `gemm`, all other by
/// LibTorch. Operands may be transposed or narrowed views; rows of `out` are contiguous. `out` is
/// not read unless it is added to. Autograd does not see it.
void multiply_into(const kernels::Gemm& gemm, const at::Tensor& out, const at::Tensor& left,
                   const at::Tensor& right, bool accumulate);
/// left right in new memory.
at::Tensor multiply(const kernels::Gemm& gemm, const at::Tensor& left, const at::Tensor& right);
/// out = x W^T + b, all operand()s of one type; without `bias`, x W^T.
void affine_into(const kernels::Gemm& gemm, const at::Tensor& out, const at::Tensor& x,
                 const at::Tensor& weight, const std::optional<at::Tensor>& bias);

/// x W^T + b in the type of x; without `bias`, x W^T.
at::Tensor affine(const kernels::Gemm& gemm, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias);
/// The product of an operand() and a matrix, in the matrix' type.
at::Tensor product(const kernels::Gemm& gemm, const at::Tensor& left, const at::Tensor& matrix);

/// Writes or adds grad_output^T x, both operand()s: the gradient of a linear layer's weight.
void write_weight_gradient(const kernels::Gemm& gemm, const GradientTarget& target,
                           const at::Tensor& grad_output, const at::Tensor& x);
/// Writes or adds the sum over the rows of `grad_output`: the gradient of a linear layer's bias.
void write_bias_gradient(const GradientTarget& target, const at::Tensor& grad_output);
/// Writes those gradients of a layer that the running backward pass asks for. The weight is tensor
/// `weight_position` among those that the autograd function got, and the bias, if any, follows it.
/// `grad_output` is an operand().
void write_gradients(const torch::autograd::AutogradContext& context, std::size_t weight_position,
                     const Linear& layer, const at::Tensor& grad_output, const at::Tensor& x);

}  // namespace fullshard::model
