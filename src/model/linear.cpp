#include "model/linear.h"

#include "model/autograd_context.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/custom_function.h>

namespace fullshard::model {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void write_weight_gradient(const GradientTarget& target, const at::Tensor& grad_output,
                           const at::Tensor& x) {
    at::Tensor out = target.gradient;
    // With beta = 0 the product does not read its output, whatever it holds.
    at::addmm_out(out, out, grad_output.t(), x, /*beta=*/target.accumulate ? 1 : 0);
}

void write_bias_gradient(const GradientTarget& target, const at::Tensor& grad_output) {
    at::Tensor out = target.gradient;
    if (target.accumulate) {
        out.add_(grad_output.sum(0));
    } else {
        at::sum_out(out, grad_output, 0);
    }
}

namespace {

/// Writes the gradients that the running backward pass asks for; the weight is input
/// `weight_position` of the autograd function and the bias follows it.
void write_gradients(const AutogradContext& context, std::size_t weight_position,
                     const Linear& layer, const at::Tensor& grad_output, const at::Tensor& x) {
    if (context.needs_input_grad(weight_position)) {
        write_weight_gradient(open_gradient(layer.weight), grad_output, x);
    }
    if (context.needs_input_grad(weight_position + 1)) {
        write_bias_gradient(open_gradient(layer.bias), grad_output);
    }
}

class LinearFunction : public torch::autograd::Function<LinearFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const Linear* layer) {
        context->save_for_backward({x, weight});
        save_layer(*context, *layer);
        return at::addmm(bias, x, weight.t());
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor& x = saved[0];
        const at::Tensor& weight = saved[1];
        write_gradients(*context, 1, saved_layer<Linear>(*context), grad_outputs[0], x);
        at::Tensor grad_x;
        if (context->needs_input_grad(0)) grad_x = at::mm(grad_outputs[0], weight);
        return {grad_x, {}, {}, {}};
    }
};

class FeedForwardFunction : public torch::autograd::Function<FeedForwardFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight1, const at::Tensor& bias1,
                              const at::Tensor& weight2, const at::Tensor& bias2,
                              const FeedForward* layer, double dropout) {
        at::Tensor hidden = at::addmm(bias1, x, weight1.t());
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
        return at::addmm(bias2, hidden, weight2.t());
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight1 = saved[1], &weight2 = saved[2];
        const at::Tensor &hidden = saved[3], &before_gelu = saved[4], &mask = saved[5];
        const double dropout = context->saved_data.at("dropout").toDouble();
        const auto& layer = saved_layer<FeedForward>(*context);

        write_gradients(*context, 3, layer.linear2, grad_outputs[0], hidden);
        at::Tensor grad = at::mm(grad_outputs[0], weight2);
        if (mask.defined()) grad.mul_(mask);
        if (dropout > 0) grad.mul_(1 / (1 - dropout));
        if (layer.activation == spec::Activation::kRelu) {
            at::threshold_backward_out(grad, grad, hidden, 0);
        } else {
            at::gelu_backward_out(grad, grad, before_gelu);
        }
        write_gradients(*context, 1, layer.linear1, grad, x);
        at::Tensor grad_x;
        if (context->needs_input_grad(0)) grad_x = at::mm(grad, weight1);
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
