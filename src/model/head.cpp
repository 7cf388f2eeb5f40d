#include "model/head.h"

#include "model/autograd_context.h"

#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <optional>
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

/// Linear layer and summed cross-entropy. Backward recomputes the logits; forward leaves it the
/// logarithm of each row's sum of exponentials.
class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                              const at::Tensor& targets, double loss_factor,
                              const OutputLayer* layer) {
        const at::Tensor ignored = targets.eq(MicroBatch::kIgnoredTarget).unsqueeze(1);
        const at::Tensor classes = targets.unsqueeze(1).masked_fill(ignored, 0);
        at::Tensor log_sums = at::empty({x.size(0), 1}, x.options().dtype(at::kFloat));
        at::Tensor total = at::zeros({}, x.options().dtype(at::kDouble));
        ChunkedLogits(*layer->linear.gemm, x, used_rows(*layer, weight), bias)
            .for_each([&](std::int64_t first, at::Tensor& logits) {
                const auto rows = [&](const at::Tensor& all) {
                    return all.narrow(0, first, logits.size(0));
                };
                const at::Tensor picked = logits.gather(1, rows(classes));
                const at::Tensor largest = logits.amax(1, /*keepdim=*/true);
                at::Tensor log_sum = rows(log_sums);
                const at::Tensor sum = logits.sub_(largest).exp_().sum(1, /*keepdim=*/true);
                log_sum.copy_(sum.log().add_(largest));
                total.add_(log_sum.sub(picked).masked_fill_(rows(ignored), 0).sum(at::kDouble));
            });
        context->save_for_backward({x, weight, ignored, classes, log_sums});
        context->saved_data["loss_factor"] = loss_factor;
        save_layer(*context, *layer);
        return total.mul_(loss_factor).to(at::kFloat);
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight = saved[1];
        const at::Tensor &ignored = saved[2], &classes = saved[3], &log_sums = saved[4];
        const auto& layer = saved_layer<OutputLayer>(*context);
        const Linear& linear = layer.linear;
        const at::Tensor row_factors = ignored.logical_not()
                                           .to(at::kFloat)
                                           .mul_(context->saved_data.at("loss_factor").toDouble())
                                           .mul_(grad_outputs[0]);
        const at::Tensor minus_one = at::full({1, 1}, -1.0, log_sums.options());

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
            // Turn the logits into their gradient, (softmax - one_hot) * factor, in place.
            logits.sub_(rows(log_sums)).exp_();
            logits.scatter_add_(1, rows(classes), minus_one.expand({logits.size(0), 1}));
            logits.mul_(rows(row_factors));
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
