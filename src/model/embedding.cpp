#include "model/embedding.h"

#include "base/error.h"
#include "model/autograd_context.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace fullshard::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Row `rows[i]` of the table's gradient gets row i of `grad_output`.
void write_row_gradients(const GradientTarget& target, const at::Tensor& rows,
                         const at::Tensor& grad_output) {
    const at::Tensor values = grad_output.flatten(0, 1).to(at::kFloat);
    if (target.gradient.scalar_type() == at::kFloat) {
        if (!target.accumulate) target.gradient.zero_();
        target.gradient.index_add_(0, rows.flatten(), values);
        return;
    }
    // A frequent token's many small gradients would vanish in a 16-bit sum.
    target.write(
        at::zeros(target.gradient.sizes(), values.options()).index_add_(0, rows.flatten(), values));
}

/// Positions 0, 1, ... of each sequence.
void write_position_gradient(const GradientTarget& target, const at::Tensor& grad_output) {
    const std::int64_t sequence = grad_output.size(1);
    const GradientTarget used{target.gradient.narrow(0, 0, sequence), target.accumulate};
    used.write(grad_output.sum(0, /*keepdim=*/false, at::kFloat));
    if (!target.accumulate) {
        target.gradient.narrow(0, sequence, target.gradient.size(0) - sequence).zero_();
    }
}

class EmbeddingFunction : public torch::autograd::Function<EmbeddingFunction> {
  public:
    static at::Tensor forward(AutogradContext* context, const at::Tensor& token_table,
                              const std::optional<at::Tensor>& position_table,
                              const at::Tensor& tokens, const std::optional<at::Tensor>& positions,
                              const EmbeddingTables* tables) {
        context->save_for_backward({tokens, positions.value_or(at::Tensor())});
        save_layer(*context, *tables);
        const std::int64_t batch = tokens.size(0), sequence = tokens.size(1);
        at::Tensor out = token_table.index_select(0, tokens.flatten()).view({batch, sequence, -1});
        if (position_table && positions) {
            out.add_(position_table->index_select(0, positions->flatten()).view_as(out));
        } else if (position_table) {
            out.add_(position_table->narrow(0, 0, sequence));
        }
        return out;
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const auto saved = context->get_saved_variables();
        const at::Tensor &tokens = saved[0], &positions = saved[1];
        const auto& tables = saved_layer<EmbeddingTables>(*context);
        if (context->needs_input_grad(0)) {
            write_row_gradients(open_gradient(tables.token), tokens, grad_outputs[0]);
        }
        if (tables.position && context->needs_input_grad(1)) {
            const GradientTarget target = open_gradient(*tables.position);
            if (positions.defined()) {
                write_row_gradients(target, positions, grad_outputs[0]);
            } else {
                write_position_gradient(target, grad_outputs[0]);
            }
        }
        return {{}, {}, {}, {}, {}};
    }
};

class EmbeddingStage final : public Stage {
  public:
    EmbeddingStage(const ParameterList& parameters, EmbeddingTables tables, double dropout)
        : Stage(parameters.all()), tables_(std::move(tables)), dropout_(dropout) {}

    at::Tensor forward(const at::Tensor&, const MicroBatch& batch) override {
        std::optional<at::Tensor> position_table;
        if (tables_.position) {
            position_table = tables_.position->value;
            if (batch.tokens.size(1) > position_table->size(0)) {
                throw UsageError("a sequence of " + std::to_string(batch.tokens.size(1)) +
                                 " tokens is longer than the model's " +
                                 std::to_string(position_table->size(0)) +
                                 " learned positions: use shorter sequences or more positions");
            }
        }
        std::optional<at::Tensor> positions;
        if (batch.positions.defined()) positions = batch.positions;
        const at::Tensor out = EmbeddingFunction::apply(tables_.token.value, position_table,
                                                        batch.tokens, positions, &tables_);
        if (!batch.training || dropout_ == 0) return out;
        return std::get<0>(at::native_dropout(out, dropout_, /*train=*/true));
    }

  private:
    EmbeddingTables tables_;
    double dropout_;
};

}  // namespace

std::unique_ptr<Stage> make_embedding(const ParameterList& parameters, EmbeddingTables tables,
                                      double dropout) {
    return std::make_unique<EmbeddingStage>(parameters, std::move(tables), dropout);
}

}  // namespace fullshard::model
