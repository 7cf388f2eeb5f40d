#include "model/linear.h"

#include "base/error.h"
#include "model/autograd_context.h"
#include "model/libtorch_gemm.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cpu/Utils.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>
#include <torch/headeronly/version.h>

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
    const bool as_it_is = !matrix.is_cpu() || multiplies(matrix.scalar_type());
    return as_it_is ? matrix : matrix.to(at::kFloat);
}

namespace {

template <typename T>
at::Tensor tensor_of(const kernels::BasicMatrix<T>& matrix) {
    const std::int64_t rows = matrix.transposed ? matrix.columns : matrix.rows;
    const at::Tensor memory =
        at::from_blob(const_cast<float*>(matrix.data), {rows, matrix.memory_row()},
                      {matrix.row_stride, 1}, at::kFloat);
    return matrix.transposed ? memory.t() : memory;
}

class LibTorchGemm final : public kernels::Gemm {
  public:
    std::string description() const override { return "LibTorch " TORCH_VERSION; }

  private:
    void compute(const kernels::OutputMatrix& out, const kernels::Matrix& left,
                 const kernels::Matrix& right, bool accumulate) const override {
        const at::NoGradGuard no_grad;
        at::Tensor result = tensor_of(out);
        // With beta = 0 the product does not read its output, whatever it holds.
        at::addmm_out(result, result, tensor_of(left), tensor_of(right),
                      /*beta=*/accumulate ? 1 : 0);
    }
};

bool by_gemm(const at::Tensor& out) {
    return out.is_cpu() && out.scalar_type() == at::kFloat;
}

/// Row-major memory with rows of contiguous elements. The stride of a dimension of size 1 says
/// nothing.
bool has_rows(const at::Tensor& matrix) {
    return (matrix.size(1) <= 1 || matrix.stride(1) == 1) &&
           (matrix.size(0) <= 1 || matrix.stride(0) >= matrix.size(1));
}

/// Of a matrix that has_rows().
template <typename T>
kernels::BasicMatrix<T> view_of(T* data, const at::Tensor& matrix) {
    return {data, matrix.size(0), matrix.size(1),
            matrix.size(0) <= 1 ? std::max<std::int64_t>(matrix.size(1), 1) : matrix.stride(0)};
}

/// `kept` holds the memory where the library cannot read the tensor's.
kernels::Matrix matrix_of(const at::Tensor& tensor, at::Tensor& kept) {
    kept = has_rows(tensor) || has_rows(tensor.t()) ? tensor : tensor.contiguous();
    if (has_rows(kept)) return view_of(kept.const_data_ptr<float>(), kept);
    return view_of(kept.const_data_ptr<float>(), kept.t()).transpose();
}

}  // namespace

std::unique_ptr<const kernels::Gemm> make_libtorch_gemm(int threads) {
    at::set_num_threads(threads);
    return std::make_unique<LibTorchGemm>();
}

void multiply_into(const kernels::Gemm& gemm, const at::Tensor& out, const at::Tensor& left,
                   const at::Tensor& right, bool accumulate) {
    if (!by_gemm(out)) {
        at::Tensor result = out;
        at::addmm_out(result, out, left, right, /*beta=*/accumulate ? 1 : 0);
        return;
    }
    ensure(out.dim() == 2 && has_rows(out), "a product is written to rows of memory");
    at::Tensor kept_left, kept_right;
    const kernels::Matrix of_left = matrix_of(left, kept_left);
    const kernels::Matrix of_right = matrix_of(right, kept_right);
    gemm.multiply(view_of(out.mutable_data_ptr<float>(), out), of_left, of_right, accumulate);
}

at::Tensor multiply(const kernels::Gemm& gemm, const at::Tensor& left, const at::Tensor& right) {
    at::Tensor out = at::empty({left.size(0), right.size(1)}, left.options());
    multiply_into(gemm, out, left, right, /*accumulate=*/false);
    return out;
}

void affine_into(const kernels::Gemm& gemm, const at::Tensor& out, const at::Tensor& x,
                 const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
    if (bias && !by_gemm(out)) {
        at::Tensor result = out;
        at::addmm_out(result, *bias, x, weight.t());
        return;
    }
    if (bias) out.copy_(*bias);
    multiply_into(gemm, out, x, weight.t(), /*accumulate=*/bias.has_value());
}

void write_weight_gradient(const kernels::Gemm& gemm, const GradientTarget& target,
                           const at::Tensor& grad_output, const at::Tensor& x) {
    if (target.gradient.scalar_type() != x.scalar_type()) {
        target.write(multiply(gemm, grad_output.t(), x));
    } else {
        multiply_into(gemm, target.gradient, grad_output.t(), x, target.accumulate);
    }
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
        write_weight_gradient(*layer.gemm, open_gradient(layer.weight), grad_output, operand(x));
    }
    if (layer.bias && context.needs_input_grad(weight_position + 1)) {
        write_bias_gradient(open_gradient(*layer.bias), grad_output);
    }
}

at::Tensor affine(const kernels::Gemm& gemm, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias) {
    const at::Tensor left = operand(x);
    const at::Tensor y = at::empty({x.size(0), weight.size(0)}, left.options());
    affine_into(gemm, y, left, operand(weight),
                bias ? std::optional(operand(*bias)) : std::nullopt);
    return y.to(x.scalar_type());
}

at::Tensor product(const kernels::Gemm& gemm, const at::Tensor& left, const at::Tensor& matrix) {
    return multiply(gemm, left, operand(matrix)).to(matrix.scalar_type());
}

Linear take_linear(ParameterList& parameters, std::int64_t out, std::int64_t in) {
    Linear layer = take_matrix(parameters, out, in);
    layer.bias = parameters.take({out});
    return layer;
}

Linear take_matrix(ParameterList& parameters, std::int64_t out, std::int64_t in) {
    return {&parameters.computing().gemm, parameters.take({out, in})};
}

namespace {

class LinearFunction : public torch::autograd::Function<LinearFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                              const Linear* layer) {
        context->save_for_backward({x, weight});
        save_layer(*context, *layer);
        return affine(*layer->gemm, x, weight, bias);
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor& x = saved[0];
        const at::Tensor& weight = saved[1];
        const at::Tensor grad = operand(grad_outputs[0]);
        const auto& layer = saved_layer<Linear>(*context);
        write_gradients(*context, 1, layer, grad, x);
        at::Tensor grad_x;
        if (context->needs_input_grad(0)) grad_x = product(*layer.gemm, grad, weight);
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
