#include "model/head.h"

#include "base/error.h"
#include "base/round_up.h"
#include "kernels/cross_entropy.h"

#include <ATen/TensorIterator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
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

/// Rows of memory that start at multiples of 64 bytes.
at::Tensor aligned_rows(std::int64_t rows, std::int64_t columns, const at::TensorOptions& options) {
    constexpr std::int64_t kElements = 32;
    return at::empty({rows, round_up(columns, kElements)}, options).narrow(1, 0, columns);
}

/// Computes the logits of [rows, d_model] chunk by chunk in one buffer: in fp32, or in the type of
/// `x` where `as_computed`.
class ChunkedLogits {
  public:
    ChunkedLogits(const kernels::Gemm& gemm, const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, bool as_computed)
        : gemm_(gemm),
          x_(operand(x)),
          weight_(operand(weight)),
          product_(aligned_rows(std::min(x.size(0), loss_chunk_rows(weight.size(0))),
                                weight.size(0), x_.options())),
          buffer_(as_computed || x_.scalar_type() == at::kFloat
                      ? product_
                      : at::empty(product_.sizes(), x.options().dtype(at::kFloat))) {
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
    at::Tensor product_;
    at::Tensor buffer_;  ///< the product itself unless it is narrower
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
    double& loss;
    std::int64_t target;
};

/// For an iterator whose elements are the first logit, the loss and the target of each row: it has
/// one dimension.
template <typename Visit>
auto row_loop(std::int64_t classes, Visit& visit) {
    return [&visit, classes = static_cast<std::size_t>(classes)](
               char** data, const std::int64_t* strides, std::int64_t count, std::int64_t) {
        for (std::int64_t i = 0; i < count; ++i) {
            visit(Row{{reinterpret_cast<float*>(data[0] + i * strides[0]), classes},
                      *reinterpret_cast<double*>(data[1] + i * strides[1]),
                      *reinterpret_cast<const std::int64_t*>(data[2] + i * strides[2])});
        }
    };
}

/// Calls visit(Row) for each row of a chunk of logits, on the library's threads. `losses` and
/// `targets` are the chunk's, one a row.
template <typename Visit>
void for_each_row(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& targets,
                  Visit&& visit) {
    constexpr std::int64_t kRowsOfOneThread = 8;
    at::TensorIteratorConfig()
        .check_all_same_dtype(false)
        .resize_outputs(false)
        .add_owned_output(logits.select(1, 0))
        .add_output(losses)
        .add_const_input(targets)
        .build()
        .for_each(row_loop(logits.size(1), visit), kRowsOfOneThread);
}

/// Puts the row's cross-entropy where it belongs: 0 without a target. Returns the logarithm of the
/// sum of exponentials.
float evaluate(const Row& row) {
    const float log_sum = kernels::log_sum_exp(row.logits);
    row.loss = 0;
    if (row.target == MicroBatch::kIgnoredTarget) return log_sum;
    ensure(row.target >= 0 && row.target < std::ssize(row.logits),
           "a target is one of the classes");
    row.loss = double{log_sum} - row.logits[static_cast<std::size_t>(row.target)];
    return log_sum;
}

/// Also replaces the logits by the gradient of `factor` times the row's loss.
void differentiate(const Row& row, float factor) {
    const float log_sum = evaluate(row);
    if (row.target == MicroBatch::kIgnoredTarget) {
        std::ranges::fill(row.logits, 0.0f);
    } else {
        kernels::cross_entropy_gradient(row.logits, log_sum, row.target, factor);
    }
}

TypedSpan memory_of(const at::Tensor& tensor, std::int64_t count) {
    TypedSpan memory;
    memory.data = static_cast<std::byte*>(tensor.data_ptr());
    memory.count = count;
    memory.device = tensor.is_cpu() ? DeviceKind::kHost : DeviceKind::kCuda;
    for (const DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kInt64}) {
        if (scalar_type(type) == tensor.scalar_type()) memory.dtype = type;
    }
    return memory;
}

/// The same on a device, where the gradient is computed in any case.
void differentiate(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& targets,
                   float factor, const OnDevice& device) {
    kernels::CrossEntropyRows rows;
    rows.classes = logits.size(1);
    rows.row_stride = logits.stride(0);
    rows.logits = memory_of(logits, (logits.size(0) - 1) * rows.row_stride + rows.classes);
    rows.targets = memory_of(targets, targets.numel());
    rows.losses = memory_of(losses, losses.numel());
    device.kernels.cross_entropy(rows, factor, device.stream);
}

/// Adds up what a chunk of logits after the other leads to.
class HeadGradients {
  public:
    /// Of those that require a gradient. `x` is [rows, d_model], `chunks` computes its logits.
    HeadGradients(const OutputLayer& layer, const at::Tensor& x, const ChunkedLogits& chunks)
        : gemm_(*layer.linear.gemm), x_(chunks.x()), weight_(chunks.weight()) {
        const Linear& linear = layer.linear;
        if (x.requires_grad()) of_x_ = at::empty_like(x);
        if (linear.weight.value.requires_grad()) {
            of_weight_.emplace(linear.weight, layer.vocab_size);
        }
        if (linear.bias && linear.bias->value.requires_grad()) {
            of_bias_.emplace(*linear.bias, layer.vocab_size);
        }
    }

    /// `of_logits` are the gradients of rows from `first` on, in fp32.
    void add(std::int64_t first, const at::Tensor& of_logits) {
        const auto rows = [&](const at::Tensor& all) {
            return all.narrow(0, first, of_logits.size(0));
        };
        const at::Tensor grad = of_logits.to(weight_.scalar_type());
        if (of_x_.defined()) {
            at::Tensor out = rows(of_x_);
            if (out.scalar_type() == grad.scalar_type()) {
                multiply_into(gemm_, out, grad, weight_, /*accumulate=*/false);
            } else {
                out.copy_(multiply(gemm_, grad, weight_));
            }
        }
        if (of_weight_) {
            of_weight_->add([&](const GradientTarget& sum) {
                write_weight_gradient(gemm_, sum, grad, rows(x_));
            });
        }
        if (of_bias_) {
            of_bias_->add([&](const GradientTarget& sum) { write_bias_gradient(sum, of_logits); });
        }
    }

    /// Delivers those of the parameters to their sinks and returns that of x, if it is wanted.
    at::Tensor finish() {
        if (of_weight_) of_weight_->finish();
        if (of_bias_) of_bias_->finish();
        return of_x_;
    }

  private:
    const kernels::Gemm& gemm_;
    at::Tensor x_, weight_;  ///< operand()s
    at::Tensor of_x_;
    std::optional<ChunkedGradient> of_weight_, of_bias_;
};

/// Linear layer and summed cross-entropy. Where somebody learns, forward computes the gradients
/// too, while it has the logits; backward hands over that of `x`.
class LinearCrossEntropyFunction : public torch::autograd::Function<LinearCrossEntropyFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                              const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                              const at::Tensor& targets, const MicroBatch* batch, bool learns,
                              const OutputLayer* layer, const OnDevice* device) {
        const at::Tensor losses =
            at::empty({x.size(0)}, x.options().dtype(device ? at::kFloat : at::kDouble));
        const auto factor = static_cast<float>(batch->loss_factor * batch->loss_scale);
        ChunkedLogits chunks(*layer->linear.gemm, x, used_rows(*layer, weight), bias,
                             /*as_computed=*/device != nullptr);
        std::optional<HeadGradients> gradients;
        if (learns) gradients.emplace(*layer, x, chunks);
        chunks.for_each([&](std::int64_t first, at::Tensor& logits) {
            const auto rows = [&](const at::Tensor& all) {
                return all.narrow(0, first, logits.size(0));
            };
            if (device != nullptr) {
                differentiate(logits, rows(losses), rows(targets), factor, *device);
            } else if (gradients) {
                for_each_row(logits, rows(losses), rows(targets),
                             [factor](const Row& row) { differentiate(row, factor); });
            } else {
                for_each_row(logits, rows(losses), rows(targets), evaluate);
            }
            if (gradients) gradients->add(first, logits);
        });
        if (gradients) context->save_for_backward({gradients->finish()});
        context->saved_data["loss_scale"] = batch->loss_scale;
        if (!x.is_cpu()) return losses.sum(at::kDouble).mul_(batch->loss_factor).to(at::kFloat);
        const double total = in_order_sum(losses.to(at::kDouble));
        return at::scalar_tensor(total * batch->loss_factor, x.options().dtype(at::kFloat));
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        // On a device the host would have to wait for it.
        ensure(!grad_outputs[0].is_cpu() || grad_outputs[0].item<double>() ==
                                                context->saved_data.at("loss_scale").toDouble(),
               "the gradient of the loss is the loss scale of the micro-batch");
        return {context->get_saved_variables()[0], {}, {}, {}, {}, {}, {}, {}};
    }

  private:
    /// Equal bits for any number of threads.
    static double in_order_sum(const at::Tensor& values) {
        const auto* first = values.const_data_ptr<double>();
        return std::accumulate(first, first + values.numel(), 0.0);
    }
};

class LinearHead final : public HeadStage {
  public:
    LinearHead(const ParameterList& parameters, std::optional<Norm> norm, OutputLayer output)
        : HeadStage(parameters.all()),
          norm_(std::move(norm)),
          output_(std::move(output)),
          device_(parameters.computing().device) {}

    at::Tensor loss(const at::Tensor& x, const MicroBatch& batch) override {
        const Linear& linear = output_.linear;
        return LinearCrossEntropyFunction::apply(
            normalised_rows(x), linear.weight.value, linear.bias_value(), batch.targets.flatten(),
            &batch, at::GradMode::is_enabled(), &output_, device_ ? &*device_ : nullptr);
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
    std::optional<OnDevice> device_;
};

}  // namespace

std::unique_ptr<HeadStage> make_head(const ParameterList& parameters, std::optional<Norm> norm,
                                     OutputLayer output) {
    return std::make_unique<LinearHead>(parameters, std::move(norm), std::move(output));
}

}  // namespace fullshard::model
