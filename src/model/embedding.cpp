#include "base/error.h"
#include "model/autograd_context.h"
#include "model/transformer_stages.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace fullshard::model {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Tables {
    Parameter token;                    ///< [vocab_size, d_model]
    std::optional<Parameter> position;  ///< [max_positions, d_model]
};

void write_token_gradient(const GradientTarget& target, const at::Tensor& tokens,
                          const at::Tensor& grad_output) {
    const at::Tensor rows = grad_output.flatten(0, 1).to(at::kFloat);
    if (target.gradient.scalar_type() == at::kFloat) {
        if (!target.accumulate) target.gradient.zero_();
        target.gradient.index_add_(0, tokens.flatten(), rows);
        return;
    }
    // A frequent token's many small gradients would vanish in a 16-bit sum.
    target.write(
        at::zeros(target.gradient.sizes(), rows.options()).index_add_(0, tokens.flatten(), rows));
}

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
    static at::Tensor forward(AutogradContext* context, const at::Tensor& tokens,
                              const at::Tensor& token_table,
                              const std::optional<at::Tensor>& position_table,
                              const Tables* tables) {
        context->save_for_backward({tokens});
        save_layer(*context, *tables);
        const std::int64_t batch = tokens.size(0), sequence = tokens.size(1);
        at::Tensor out = token_table.index_select(0, tokens.flatten()).view({batch, sequence, -1});
        if (position_table) out.add_(position_table->narrow(0, 0, sequence));
        return out;
    }

    static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
        const at::Tensor tokens = context->get_saved_variables()[0];
        const auto& tables = saved_layer<Tables>(*context);
        if (context->needs_input_grad(1)) {
            write_token_gradient(open_gradient(tables.token), tokens, grad_outputs[0]);
        }
        if (tables.position && context->needs_input_grad(2)) {
            write_position_gradient(open_gradient(*tables.position), grad_outputs[0]);
        }
        return {{}, {}, {}, {}};
    }
};

class EmbeddingStage final : public Stage {
  public:
    EmbeddingStage(const ParameterList& parameters, Tables tables)
        : Stage(parameters.all()), tables_(std::move(tables)) {}

    at::Tensor forward(const at::Tensor&, const MicroBatch& batch) override {
        std::optional<at::Tensor> positions;
        if (tables_.position) {
            positions = tables_.position->value;
            if (batch.tokens.size(1) > positions->size(0)) {
                throw UsageError("a sequence of " + std::to_string(batch.tokens.size(1)) +
                                 " tokens is longer than the model's " +
                                 std::to_string(positions->size(0)) +
                                 " learned positions: use shorter sequences or more positions");
            }
        }
        return EmbeddingFunction::apply(batch.tokens, tables_.token.value, positions, &tables_);
    }

  private:
    Tables tables_;
};

}  // namespace

std::unique_ptr<Stage> make_embedding(const spec::SimpleTransformer& model,
                                      ParameterList& parameters) {
    Tables tables;
    tables.token = parameters.take({model.vocab_size, model.d_model});
    if (model.max_positions > 0) {
        tables.position = parameters.take({model.max_positions, model.d_model});
    }
    return std::make_unique<EmbeddingStage>(parameters, std::move(tables));
}

}  // namespace fullshard::model
