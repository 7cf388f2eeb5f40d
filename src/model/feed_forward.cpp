#include "model/feed_forward.h"

#include "base/error.h"
#include "kernels/gelu.h"
#include "model/autograd_context.h"

#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fullshard::model {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// As the library calls it.
std::string_view gelu_formula(Activation activation) {
    return activation == Activation::kTanhGelu ? "tanh" : "none";
}

/// Calls visit(elements of x, elements of out) for pieces of two contiguous fp32 tensors of one
/// shape, on the library's threads. The iterator makes one dimension of theirs.
template <typename Visit>
void for_each_piece(const at::Tensor& x, const at::Tensor& out, Visit&& visit) {
    ensure(x.is_contiguous() && out.is_contiguous(), "both are contiguous");
    at::TensorIteratorConfig().add_output(out).add_const_input(x).build().for_each(
        [&](char** data, const std::int64_t*, std::int64_t count, std::int64_t) {
            const auto size = static_cast<std::size_t>(count);
            visit(std::span(reinterpret_cast<const float*>(data[1]), size),
                  std::span(reinterpret_cast<float*>(data[0]), size));
        });
}

bool has_own_kernel(Activation activation, const at::Tensor& x) {
    return activation == Activation::kTanhGelu && x.is_cpu() && x.scalar_type() == at::kFloat;
}

at::Tensor gelu(Activation activation, const at::Tensor& x) {
    if (!has_own_kernel(activation, x)) return at::gelu(x, gelu_formula(activation));
    const at::Tensor out = at::empty_like(x);
    for_each_piece(x, out, kernels::tanh_gelu);
    return out;
}

/// Multiplies `grad` by the derivative at `x`.
void gelu_backward(Activation activation, const at::Tensor& x, at::Tensor& grad) {
    if (has_own_kernel(activation, x)) {
        for_each_piece(x, grad, kernels::tanh_gelu_backward);
    } else {
        at::gelu_backward_out(grad, grad, x, gelu_formula(activation));
    }
}

class FeedForwardFunction : public torch::autograd::Function<FeedForwardFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight1, const at::Tensor& bias1,
                              const at::Tensor& weight2, const at::Tensor& bias2,
                              const FeedForward* layer, double dropout) {
        at::Tensor hidden = affine(*layer->linear1.gemm, x, weight1, bias1);
        at::Tensor before_gelu, mask;
        if (layer->activation == Activation::kRelu) {
            hidden.relu_();
        } else {
            before_gelu = hidden;
            hidden = gelu(layer->activation, before_gelu);
        }
        if (dropout > 0) {
            mask = at::empty_like(hidden, at::kBool).bernoulli_(1 - dropout);
            hidden.mul_(mask).mul_(1 / (1 - dropout));
        }
        // A positive hidden value says both that ReLU passed it and that dropout kept it.
        if (layer->activation == Activation::kRelu) mask.reset();
        context->save_for_backward({x, weight1, weight2, hidden, before_gelu, mask});
        context->saved_data["dropout"] = dropout;
        save_layer(*context, *layer);
        return affine(*layer->linear2.gemm, hidden, weight2, bias2);
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight1 = saved[1], &weight2 = saved[2];
        const at::Tensor &hidden = saved[3], &before_gelu = saved[4], &mask = saved[5];
        const double dropout = context->saved_data.at("dropout").toDouble();
        const auto& layer = saved_layer<FeedForward>(*context);

        const at::Tensor grad_output = operand(grad_outputs[0]);
        write_gradients(*context, 3, layer.linear2, grad_output, hidden);
        at::Tensor grad = product(*layer.linear2.gemm, grad_output, weight2);
        if (mask.defined()) grad.mul_(mask);
        if (dropout > 0) grad.mul_(1 / (1 - dropout));
        if (layer.activation == Activation::kRelu) {
            at::threshold_backward_out(grad, grad, hidden, 0);
        } else {
            gelu_backward(layer.activation, before_gelu, grad);
        }
        grad = operand(grad);
        write_gradients(*context, 1, layer.linear1, grad, x);
        at::Tensor grad_x;
        if (context->needs_input_grad(0)) grad_x = product(*layer.linear1.gemm, grad, weight1);
        return {grad_x, {}, {}, {}, {}, {}, {}};
    }
};

class SwiGluFunction : public torch::autograd::Function<SwiGluFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& gate_weight, const at::Tensor& up_weight,
                              const at::Tensor& down_weight, const SwiGlu* layer) {
        const at::Tensor gate = affine(*layer->gate.gemm, x, gate_weight, {});
        const at::Tensor up = affine(*layer->up.gemm, x, up_weight, {});
        context->save_for_backward({x, gate_weight, up_weight, down_weight, gate, up});
        save_layer(*context, *layer);
        return affine(*layer->down.gemm, at::silu(gate).mul_(up), down_weight, {});
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &gate_weight = saved[1], &up_weight = saved[2];
        const at::Tensor &down_weight = saved[3], &gate = saved[4], &up = saved[5];
        const auto& layer = saved_layer<SwiGlu>(*context);

        const at::Tensor grad_output = operand(grad_outputs[0]);
        const at::Tensor open_gate = at::silu(gate);
        write_gradients(*context, 3, layer.down, grad_output, open_gate * up);
        at::Tensor grad_hidden = product(*layer.down.gemm, grad_output, down_weight);
        const at::Tensor grad_up = operand(grad_hidden * open_gate);
        write_gradients(*context, 2, layer.up, grad_up, x);
        const at::Tensor grad_gate = operand(at::silu_backward(grad_hidden.mul_(up), gate));
        write_gradients(*context, 1, layer.gate, grad_gate, x);
        at::Tensor grad_x;
        if (context->needs_input_grad(0)) {
            const at::Tensor sum = multiply(*layer.up.gemm, grad_up, operand(up_weight));
            multiply_into(*layer.gate.gemm, sum, grad_gate, operand(gate_weight),
                          /*accumulate=*/true);
            grad_x = sum.to(x.scalar_type());
        }
        return {grad_x, {}, {}, {}, {}};
    }
};

}  // namespace

at::Tensor FeedForward::forward(const at::Tensor& x, double dropout) const {
    return FeedForwardFunction::apply(x, linear1.weight.value, linear1.bias->value,
                                      linear2.weight.value, linear2.bias->value, this, dropout);
}

at::Tensor SwiGlu::forward(const at::Tensor& x) const {
    return SwiGluFunction::apply(x, gate.weight.value, up.weight.value, down.weight.value, this);
}

}  // namespace fullshard::model
