#include "model/head.h"

#include "base/error.h"
#include "kernels/cross_entropy.h"
#include "model/autograd_context.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace fullshard::model {

std::int64_t loss_chunk_rows(std::int64_t vocab_size) {
    constexpr std::int64_t kBytes = std::int64_t{4} << 20, kLeastRows = 64;
    return std::max(kLeastRows, kBytes / (vocab_size * static_cast<std::int64_t>(sizeof(float))));
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Computes the logits of [rows, d_model] chunk by chunk in one buffer, in fp32.
class ChunkedLogits {
  public:
    ChunkedLogits(const kernels::Gemm& gemm, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias)
        : gemm_(gemm),
          x_(operand(x)),
          weight_(operand(weight)),
          buffer_(at::empty({std::min(x.size(0), loss_chunk_rows(weight.size(0))), weight.size(0)},
                            x.options().dtype(at::kFloat))),
          product_(x_.scalar_type() == at::kFloat ? buffer_
                                                  : at::empty(buffer_.sizes(), x_.options())) {
        if (bias) bias_ = operand(*bias);
    }

    /// operand()s of the products.
    const at::Tensor& x() const { return x_; }
    const at::Tensor& weight() const { return weight_; }

    /// Calls visit(first row, logits) for each chunk in order; `visit` may overwrite the logits.
    template <typename Visit>
    void for_each(Visit&& visit) {
        const std::int64_t rows = x_.size(0);
        for (std::int64_t first = 0; first < rows; first += buffer_.size(0)) {
            const std::int64_t count = std::min(buffer_.size(0), rows - first);
            const at::Tensor product = product_.narrow(0, 0, count);
            affine_into(gemm_, product, x_.narrow(0, first, count), weight_, bias_);
            at::Tensor logits = buffer_.narrow(0, 0, count);
            if (!product_.is_same(buffer_)) logits.copy_(product);
            visit(first, logits);
        }
    }

  private:
    const kernels::Gemm& gemm_;
    at::Tensor x_;
    at::Tensor weight_;
    std::optional<at::Tensor> bias_;
    at::Tensor buffer_;
    at::Tensor product_;  ///< the buffer itself unless products are 16 bits wide
};

/// Sums a parameter's gradient over chunks, in fp32 even if the sink is narrower.
class ChunkedGradient {
  public:
    /// Of the parameter's first rows; the gradient of those behind is zero.
    ChunkedGradient(const Parameter& parameter, std::int64_t rows)
        : target_(open_gradient(parameter)) {
        const std::int64_t padding = target_.gradient.size(0) - rows;
        if (!target_.accumulate) target_.gradient.narrow(0, rows, padding).zero_();
        target_.gradient = target_.gradient.narrow(0, 0, rows);
        if (target_.gradient.scalar_type() != at::kFloat) {
            sum_.gradient = at::empty(target_.gradient.sizes(), at::kFloat);
        } else {
            sum_ = target_;
        }
    }

    /// Calls write(target) for the next chunk.
    template <typename Write>
    void add(Write&& write) {
        write(sum_);
        sum_.accumulate = true;
    }
    void finish() {
        if (!sum_.gradient.is_same(target_.gradient)) target_.write(sum_.gradient);
    }

  private:
    GradientTarget target_;
    GradientTarget sum_;
};

/// The part of the weight that has logits.
at::Tensor used_rows(const OutputLayer& layer, const at::Tensor& weight) {
    return weight.narrow(0, 0, layer.vocab_size);
}

/// A token's logits and what goes with them.
struct Row {
    std::span<float> logits;
    float& log_sum;
    std::int64_t target;
};

/// For an iterator whose elements are the first logit, the log sum and the target of each row: it
/// has one dimension.
template <typename Visit>
auto row_loop(std::int64_t classes, Visit& visit) {
    return [&visit, classes = static_cast<std::size_t>(classes)](
               char** data, const std::int64_t* strides, std::int64_t count, std::int64_t) {
        for (std::int64_t i = 0; i < count; ++i) {
            visit(Row{{reinterpret_cast<float*>(data[0] + i * strides[0]), classes},
                      *reinterpret_cast<float*>(data[1] + i * strides[1]),
                      *reinterpret_cast<const std::int64_t*>(data[2] + i * strides[2])});
        }
    };
}

/// The rows of a chunk of logits. `first` is the chunk's first row in `log_sums` and `targets`.
class Rows {
  public:
    Rows(const at::Tensor& logits, const at::Tensor& log_sums, const at::Tensor& targets,
         std::int64_t first)
        : logits_(logits),
          log_sums_(log_sums.narrow(0, first, logits.size(0))),
          targets_(targets.narrow(0, first, logits.size(0))) {}

    /// Calls visit(Row) for each, on the library's threads.
    template <typename Visit>
    void for_each(Visit&& visit) const {
        constexpr std::int64_t kRowsOfOneThread = 8;
        iterator().for_each(row_loop(logits_.size(1), visit), kRowsOfOneThread);
    }

    /// The cross-entropy of those with a target, added in order.
    double total_loss() const {
        double total = 0;
        const auto add = [&](Row row) {
            if (row.target == MicroBatch::kIgnoredTarget) return;
            ensure(row.target >= 0 && row.target < logits_.size(1),
                   "a target is one of the classes");
            total += double{row.log_sum} - row.logits[static_cast<std::size_t>(row.target)];
        };
        iterator().serial_for_each(row_loop(logits_.size(1), add), {0, logits_.size(0)});
        return total;
    }

  private:
    /// Goes over the rows; see row_loop().
    at::TensorIterator iterator() const {
        return at::TensorIteratorConfig()
            .check_all_same_dtype(false)
            .resize_outputs(false)
            .add_owned_output(logits_.select(1, 0))
            .add_output(log_sums_)
            .add_const_input(targets_)
            .build();
    }

    at::Tensor logits_;
    at::Tensor log_sums_;
    at::Tensor targets_;
};

/// Linear layer and summed cross-entropy. Backward recomputes the logits; forward leaves it the
/// logarithm of each row's sum of exponentials.
class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                              const at::Tensor& targets, double loss_factor,
                              const OutputLayer* layer) {
        const at::Tensor log_sums = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
        double total = 0;
        ChunkedLogits(*layer->linear.gemm, x, used_rows(*layer, weight), bias)
            .for_each([&](std::int64_t first, at::Tensor& logits) {
                const Rows rows(logits, log_sums, targets, first);
                rows.for_each([](Row row) { row.log_sum = kernels::log_sum_exp(row.logits); });
                total += rows.total_loss();
            });
        context->save_for_backward({x, weight, targets, log_sums});
        context->saved_data["loss_factor"] = loss_factor;
        save_layer(*context, *layer);
        return at::scalar_tensor(total * loss_factor, log_sums.options());
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight = saved[1];
        const at::Tensor &targets = saved[2], &log_sums = saved[3];
        const auto& layer = saved_layer<OutputLayer>(*context);
        const Linear& linear = layer.linear;
        const float factor = static_cast<float>(context->saved_data.at("loss_factor").toDouble()) *
                             grad_outputs[0].item<float>();

        at::Tensor grad_x;
        std::optional<ChunkedGradient> grad_weight, grad_bias;
        if (context->needs_input_grad(0)) grad_x = at::empty_like(x);
        if (context->needs_input_grad(1)) grad_weight.emplace(linear.weight, layer.vocab_size);
        if (linear.bias && context->needs_input_grad(2)) {
            grad_bias.emplace(*linear.bias, layer.vocab_size);
        }

        ChunkedLogits chunks(*linear.gemm, x, used_rows(layer, weight), linear.bias_value());
        chunks.for_each([&](std::int64_t first, at::Tensor& logits) {
            const auto rows = [&](const at::Tensor& all) {
                return all.narrow(0, first, logits.size(0));
            };
            Rows(logits, log_sums, targets, first).for_each([&](Row row) {
                if (row.target == MicroBatch::kIgnoredTarget) {
                    std::ranges::fill(row.logits, 0.0f);
                } else {
                    kernels::cross_entropy_gradient(row.logits, row.log_sum, row.target, factor);
                }
            });
            const at::Tensor grad = logits.to(chunks.weight().scalar_type());
            if (grad_x.defined()) {
                at::Tensor out = rows(grad_x);
                if (out.scalar_type() == grad.scalar_type()) {
                    multiply_into(*linear.gemm, out, grad, chunks.weight(), /*accumulate=*/false);
                } else {
                    out.copy_(multiply(*linear.gemm, grad, chunks.weight()));
                }
            }
            if (grad_weight) {
                grad_weight->add([&](const GradientTarget& sum) {
                    write_weight_gradient(*linear.gemm, sum, grad, rows(chunks.x()));
                });
            }
            if (grad_bias) {
                grad_bias->add(
                    [&](const GradientTarget& sum) { write_bias_gradient(sum, logits); });
            }
        });
        if (grad_weight) grad_weight->finish();
        if (grad_bias) grad_bias->finish();
        return {grad_x, {}, {}, {}, {}, {}};
    }
};

class LinearHead final : public HeadStage {
  public:
    LinearHead(const ParameterList& parameters, std::optional<Norm> norm, OutputLayer output)
        : HeadStage(parameters.all()), norm_(std::move(norm)), output_(std::move(output)) {}

    at::Tensor loss(const at::Tensor& x, const MicroBatch& batch) override {
        const Linear& linear = output_.linear;
        return LinearCrossEntropyFunction::apply(normalised_rows(x), linear.weight.value,
                                                 linear.bias_value(), batch.targets.flatten(),
                                                 batch.loss_factor, &output_);
    }

    at::Tensor logits(const at::Tensor& x, const MicroBatch&) override {
        return logits_of(normalised_rows(x)).view({x.size(0), x.size(1), -1});
    }

    at::Tensor logits_at(const at::Tensor& x, const MicroBatch&, const at::Tensor& rows) override {
        return logits_of(normalised_rows(x.flatten(0, 1).index_select(0, rows).unsqueeze(0)));
    }

  private:
    /// [batch, sequence, d_model] as [rows, d_model].
    at::Tensor normalised_rows(const at::Tensor& x) const {
        const at::Tensor rows = x.flatten(0, 1);
        return norm_ ? normalise(*norm_, rows) : rows;
    }

    at::Tensor logits_of(const at::Tensor& rows) const {
        const at::Tensor all = output_.linear.forward(rows);
        if (all.size(1) == output_.vocab_size) return all;
        return all.narrow(1, 0, output_.vocab_size).contiguous();
    }

    std::optional<Norm> norm_;
    OutputLayer output_;
};

}  // namespace

std::unique_ptr<HeadStage> make_head(const ParameterList& parameters, std::optional<Norm> norm,
                                     OutputLayer output) {
    return std::make_unique<LinearHead>(parameters, std::move(norm), std::move(output));
}

}  // namespace fullshard::model
