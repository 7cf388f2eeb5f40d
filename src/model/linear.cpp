#include "model/linear.h"

#include "model/autograd_context.h"

#include <ATen/cpu/Utils.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

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

void write_gradients(const AutogradContext& context, std::size_t weight_position,
                     const Linear& layer, const at::Tensor& grad_output, const at::Tensor& x) {
    if (context.needs_input_grad(weight_position)) {
        write_weight_gradient(open_gradient(layer.weight), grad_output, operand(x));
    }
    if (layer.bias && context.needs_input_grad(weight_position + 1)) {
        write_bias_gradient(open_gradient(*layer.bias), grad_output);
    }
}

at::Tensor affine(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
    const at::Tensor left = operand(x), right = operand(weight).t();
    const at::Tensor y = bias ? at::addmm(operand(*bias), left, right) : at::mm(left, right);
    return y.to(x.scalar_type());
}

at::Tensor product(const at::Tensor& left, const at::Tensor& matrix) {
    return at::mm(left, operand(matrix)).to(matrix.scalar_type());
}

Linear take_linear(ParameterList& parameters, std::int64_t out, std::int64_t in) {
    Linear layer = take_matrix(parameters, out, in);
    layer.bias = parameters.take({out});
    return layer;
}

Linear take_matrix(ParameterList& parameters, std::int64_t out, std::int64_t in) {
    return {parameters.take({out, in})};
}

namespace {

class LinearFunction : public torch::autograd::Function<LinearFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const std::optional<at::Tensor>& bias,
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

}  // namespace

std::optional<at::Tensor> Linear::bias_value() const {
    if (!bias) return std::nullopt;
    return bias->value;
}

at::Tensor Linear::forward(const at::Tensor& x) const {
    return LinearFunction::apply(x, weight.value, bias_value(), this);
}

}  // namespace fullshard::model
