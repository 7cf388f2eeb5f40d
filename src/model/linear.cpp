#include "model/linear.h"

#include "model/autograd_context.h"

#include <ATen/cpu/Utils.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <initializer_list>

namespace fullshard::model {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

bool cpu_has(const std::initializer_list<const char*>& names) {
    const auto capabilities = at::cpu::get_cpu_capabilities();
    return std::ranges::any_of(names, [&](const char* name) {
        const auto found = capabilities.find(name);
        return found != capabilities.end() && found->second.toBool();
    });
}

}  // namespace

bool multiplies(at::ScalarType type) {
    static const bool bf16 = cpu_has({"avx512_bf16", "amx_bf16"});
    static const bool fp16 = cpu_has({"avx512_fp16", "amx_fp16"});
    return type == at::kBFloat16 ? bf16 : type == at::kHalf ? fp16 : true;
}

at::Tensor operand(const at::Tensor& matrix) {
    return multiplies(matrix.scalar_type()) ? matrix : matrix.to(at::kFloat);
}

void write_weight_gradient(const GradientTarget& target, const at::Tensor& grad_output,
                           const at::Tensor& x) {
    at::Tensor out = target.gradient;
    if (out.scalar_type() != x.scalar_type()) {
        target.write(at::mm(grad_output.t(), x));
        return;
    }
    // With beta = 0 the product does not read its output, whatever it holds.
    at::addmm_out(out, out, grad_output.t(), x, /*beta=*/target.accumulate ? 1 : 0);
}

void write_bias_gradient(const GradientTarget& target, const at::Tensor& grad_output) {
    at::Tensor out = target.gradient;
    if (target.accumulate || out.scalar_type() != at::kFloat) {
        target.write(grad_output.sum(0, /*keepdim=*/false, at::kFloat));
    } else {
        at::sum_out(out, grad_output, 0);
    }
}

namespace {

/// Writes the gradients that the running backward pass asks for; the weight is input
/// `weight_position` of the autograd function and the bias follows it. `grad_output` is an
/// operand().
void write_gradients(const AutogradContext& context, std::size_t weight_position,
                     const Linear& layer, const at::Tensor& grad_output, const at::Tensor& x) {
    if (context.needs_input_grad(weight_position)) {
        write_weight_gradient(open_gradient(layer.weight), grad_output, operand(x));
    }
    if (context.needs_input_grad(weight_position + 1)) {
        write_bias_gradient(open_gradient(layer.bias), grad_output);
    }
}

/// x W^T + b in the type of x.
at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return at::addmm(operand(bias), operand(x), operand(weight).t()).to(x.scalar_type());
}

/// The product of an operand() and a matrix, in the matrix' type.
at::Tensor product(const at::Tensor& left, const at::Tensor& matrix) {
    return at::mm(left, operand(matrix)).to(matrix.scalar_type());
}

class LinearFunction : public torch::autograd::Function<LinearFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const Linear* layer) {
        context->save_for_backward({x, weight});
        save_layer(*context, *layer);
        return affine(x, weight, bias);
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor& x = saved[0];
        const at::Tensor& weight = saved[1];
        const at::Tensor grad = operand(grad_outputs[0]);
        write_gradients(*context, 1, saved_layer<Linear>(*context), grad, x);
        at::Tensor grad_x;
        if (context->needs_input_grad(0)) grad_x = product(grad, weight);
        return {grad_x, {}, {}, {}};
    }
};

class FeedForwardFunction : public torch::autograd::Function<FeedForwardFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight1, const at::Tensor& bias1,
                              const at::Tensor& weight2, const at::Tensor& bias2,
                              const FeedForward* layer, double dropout) {
        at::Tensor hidden = affine(x, weight1, bias1);
        at::Tensor before_gelu, mask;
        if (layer->activation == spec::Activation::kRelu) {
            hidden.relu_();
        } else {
            before_gelu = hidden;
            hidden = at::gelu(before_gelu);
        }
        if (dropout > 0) {
            mask = at::empty_like(hidden, at::kBool).bernoulli_(1 - dropout);
            hidden.mul_(mask).mul_(1 / (1 - dropout));
        }
        // A positive hidden value says both that ReLU passed it and that dropout kept it.
        if (layer->activation == spec::Activation::kRelu) mask.reset();
        context->save_for_backward({x, weight1, weight2, hidden, before_gelu, mask});
        context->saved_data["dropout"] = dropout;
        save_layer(*context, *layer);
        return affine(hidden, weight2, bias2);
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight1 = saved[1], &weight2 = saved[2];
        const at::Tensor &hidden = saved[3], &before_gelu = saved[4], &mask = saved[5];
        const double dropout = context->saved_data.at("dropout").toDouble();
        const auto& layer = saved_layer<FeedForward>(*context);

        const at::Tensor grad_output = operand(grad_outputs[0]);
        write_gradients(*context, 3, layer.linear2, grad_output, hidden);
        at::Tensor grad = product(grad_output, weight2);
        if (mask.defined()) grad.mul_(mask);
        if (dropout > 0) grad.mul_(1 / (1 - dropout));
        if (layer.activation == spec::Activation::kRelu) {
            at::threshold_backward_out(grad, grad, hidden, 0);
        } else {
            at::gelu_backward_out(grad, grad, before_gelu);
        }
        grad = operand(grad);
        write_gradients(*context, 1, layer.linear1, grad, x);
        at::Tensor grad_x;
        if (context->needs_input_grad(0)) grad_x = product(grad, weight1);
        return {grad_x, {}, {}, {}, {}, {}, {}};
    }
};

}  // namespace

at::Tensor Linear::forward(const at::Tensor& x) const {
    return LinearFunction::apply(x, weight.value, bias.value, this);
}

at::Tensor FeedForward::forward(const at::Tensor& x, double dropout) const {
    return FeedForwardFunction::apply(x, linear1.weight.value, linear1.bias.value,
                                      linear2.weight.value, linear2.bias.value, this, dropout);
}

}  // namespace fullshard::model
