#include "model/autograd_context.h"
#include "model/linear.h"
#include "model/simple_transformer.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
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

/// Computes the logits of [rows, d_model] chunk by chunk in one buffer.
class ChunkedLogits {
  public:
    ChunkedLogits(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)
        : x_(x),
          weight_(weight),
          bias_(bias),
          buffer_(at::empty({std::min(x.size(0), loss_chunk_rows(weight.size(0))), weight.size(0)},
                            x.options())) {}

    /// Calls visit(first row, logits) for each chunk in order; `visit` may overwrite the logits.
    template <typename Visit>
    void for_each(Visit&& visit) {
        const std::int64_t rows = x_.size(0);
        for (std::int64_t first = 0; first < rows; first += buffer_.size(0)) {
            const std::int64_t count = std::min(buffer_.size(0), rows - first);
            at::Tensor logits = buffer_.narrow(0, 0, count);
            at::addmm_out(logits, bias_, x_.narrow(0, first, count), weight_.t());
            visit(first, logits);
        }
    }

  private:
    const at::Tensor& x_;
    const at::Tensor& weight_;
    const at::Tensor& bias_;
    at::Tensor buffer_;
};

/// Linear layer and summed cross-entropy. Backward recomputes the logits; forward leaves it the
/// logarithm of each row's sum of exponentials.
class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const at::Tensor& targets, double loss_factor, const Linear* layer) {
        const at::Tensor ignored = targets.eq(MicroBatch::kIgnoredTarget).unsqueeze(1);
        const at::Tensor classes = targets.unsqueeze(1).masked_fill(ignored, 0);
        at::Tensor log_sums = at::empty({x.size(0), 1}, x.options());
        at::Tensor total = at::zeros({}, x.options().dtype(at::kDouble));
        ChunkedLogits(x, weight, bias).for_each([&](std::int64_t first, at::Tensor& logits) {
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
        context->save_for_backward({x, weight, bias, ignored, classes, log_sums});
        context->saved_data["loss_factor"] = loss_factor;
        save_layer(*context, *layer);
        return total.mul_(loss_factor).to(x.scalar_type());
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
        const at::Tensor &ignored = saved[3], &classes = saved[4], &log_sums = saved[5];
        const auto& layer = saved_layer<Linear>(*context);
        const at::Tensor row_factors = ignored.logical_not()
                                           .to(x.scalar_type())
                                           .mul_(context->saved_data.at("loss_factor").toDouble())
                                           .mul_(grad_outputs[0]);
        const at::Tensor minus_one = at::full({1, 1}, -1.0, x.options());

        at::Tensor grad_x;
        std::optional<GradientTarget> grad_weight, grad_bias;
        if (context->needs_input_grad(0)) grad_x = at::empty_like(x);
        if (context->needs_input_grad(1)) grad_weight = open_gradient(layer.weight);
        if (context->needs_input_grad(2)) grad_bias = open_gradient(layer.bias);

        ChunkedLogits(x, weight, bias).for_each([&](std::int64_t first, at::Tensor& logits) {
            const auto rows = [&](const at::Tensor& all) {
                return all.narrow(0, first, logits.size(0));
            };
            // Turn the logits into their gradient, (softmax - one_hot) * factor, in place.
            logits.sub_(rows(log_sums)).exp_();
            logits.scatter_add_(1, rows(classes), minus_one.expand({logits.size(0), 1}));
            logits.mul_(rows(row_factors));
            if (grad_x.defined()) {
                at::Tensor out = rows(grad_x);
                at::mm_out(out, logits, weight);
            }
            if (grad_weight) {
                write_weight_gradient(*grad_weight, logits, rows(x));
                grad_weight->accumulate = true;
            }
            if (grad_bias) {
                write_bias_gradient(*grad_bias, logits);
                grad_bias->accumulate = true;
            }
        });
        return {grad_x, {}, {}, {}, {}, {}};
    }
};

class LinearHead final : public HeadStage {
  public:
    explicit LinearHead(Linear linear) : linear_(std::move(linear)) {}

    at::Tensor loss(const at::Tensor& x, const MicroBatch& batch) override {
        return LinearCrossEntropyFunction::apply(x.flatten(0, 1), linear_.weight.value,
                                                 linear_.bias.value, batch.targets.flatten(),
                                                 batch.loss_factor, &linear_);
    }

    at::Tensor logits(const at::Tensor& x) override {
        return linear_.forward(x.flatten(0, 1)).view({x.size(0), x.size(1), -1});
    }

  private:
    Linear linear_;
};

}  // namespace

std::unique_ptr<HeadStage> make_head(const spec::SimpleTransformer& model,
                                     ParameterList& parameters) {
    // Braces evaluate from left to right: weight before bias, as in the spec.
    return std::make_unique<LinearHead>(Linear{parameters.take({model.vocab_size, model.d_model}),
                                               parameters.take({model.vocab_size})});
}

}  // namespace fullshard::model
