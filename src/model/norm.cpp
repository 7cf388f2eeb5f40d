#include "model/norm.h"

#include "model/autograd_context.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

namespace fullshard::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The library's layer norm, but in fp32 between a 16-bit input and its 16-bit output: the library
/// would keep the statistics, and sum the parameters' gradients over the rows, in the input's type.
class LayerNormFunction : public torch::autograd::Function<LayerNormFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const LayerNorm* layer) {
        const auto [out, mean, inverse_deviation] = at::native_layer_norm(
            x, weight.sizes(), weight.to(at::kFloat), bias.to(at::kFloat), layer->epsilon);
        context->save_for_backward({x, weight, bias, mean, inverse_deviation});
        save_layer(*context, *layer);
        return out;
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
        const std::array<bool, 3> wanted{context->needs_input_grad(0), context->needs_input_grad(1),
                                         context->needs_input_grad(2)};
        const auto [grad_x, grad_weight, grad_bias] = at::native_layer_norm_backward(
            grad_outputs[0].to(at::kFloat), x.to(at::kFloat), weight.sizes(), saved[3], saved[4],
            weight.to(at::kFloat), bias.to(at::kFloat), wanted);
        const auto& layer = saved_layer<LayerNorm>(*context);
        if (wanted[1]) store_gradient(layer.weight, grad_weight);
        if (wanted[2]) store_gradient(layer.bias, grad_bias);
        return {wanted[0] ? grad_x.to(x.scalar_type()) : at::Tensor(), {}, {}, {}};
    }
};

class RmsNormFunction : public torch::autograd::Function<RmsNormFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const RmsNorm* layer) {
        const at::Tensor wide = x.to(at::kFloat);
        const at::Tensor inverse_rms =
            wide.square().mean(-1, /*keepdim=*/true).add_(layer->epsilon).rsqrt_();
        context->save_for_backward({x, weight, inverse_rms});
        save_layer(*context, *layer);
        return (wide * inverse_rms).to(x.scalar_type()).mul_(weight);
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight = saved[1], &inverse_rms = saved[2];
        const at::Tensor grad_output = grad_outputs[0].to(at::kFloat);
        const at::Tensor normalised = x.to(at::kFloat) * inverse_rms;
        if (context->needs_input_grad(1)) {
            store_gradient(saved_layer<RmsNorm>(*context).weight,
                           (grad_output * normalised).sum(0));
        }
        at::Tensor grad_x;
        if (context->needs_input_grad(0)) {
            // d(x / rms) = (dx - n mean(n dx)) / rms with n = x / rms.
            grad_x = grad_output * weight.to(at::kFloat);
            const at::Tensor along = (grad_x * normalised).mean(-1, /*keepdim=*/true);
            grad_x.addcmul_(normalised, along, /*value=*/-1).mul_(inverse_rms);
            grad_x = grad_x.to(x.scalar_type());
        }
        return {grad_x, {}, {}};
    }
};

}  // namespace

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
    return LayerNormFunction::apply(x, weight.value, bias.value, this);
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
    return RmsNormFunction::apply(x, weight.value, this);
}

at::Tensor normalise(const Norm& norm, const at::Tensor& x) {
    return std::visit([&](const auto& kind) { return kind.forward(x); }, norm);
}

LayerNorm take_layer_norm(ParameterList& parameters, std::int64_t size, double epsilon) {
    // Braces evaluate from left to right: weight before bias, as in the spec.
    return {parameters.take({size}), parameters.take({size}), epsilon};
}

RmsNorm take_rms_norm(ParameterList& parameters, std::int64_t size, double epsilon) {
    return {parameters.take({size}), epsilon};
}

}  // namespace fullshard::model
