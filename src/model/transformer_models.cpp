// The families: each is an embedding, blocks and a head, put together from the same parts. A
// stage's parameters are taken in the order of its spec.
#include "base/error.h"
#include "model/attention.h"
#include "model/embedding.h"
#include "model/feed_forward.h"
#include "model/gpt2.h"
#include "model/head.h"
#include "model/llama.h"
#include "model/norm.h"
#include "model/simple_transformer.h"

#include <ATen/ops/native_dropout.h>

#include <tuple>
#include <utility>

namespace fullshard::model {

namespace {

/// x + dropout(branch). The sum takes the memory of `branch` or of its dropped copy: no node of the
/// graph has saved either.
at::Tensor add_residual(const at::Tensor& x, at::Tensor branch, double dropout) {
    if (dropout > 0) branch = std::get<0>(at::native_dropout(branch, dropout, /*train=*/true));
    return branch.add_(x);
}

/// Probabilities in training.
struct BlockDropout {
    double attention = 0.0;  ///< of attention weights
    double hidden = 0.0;     ///< inside the feed-forward branch
    double branches = 0.0;   ///< of what is added to the residual
};

struct BlockParts {
    Attention attention;
    std::variant<FeedForward, SwiGlu> feed_forward;
    Norm norm1;
    Norm norm2;
    bool norm_first = true;  ///< norms before the branches instead of behind the sums
    BlockDropout dropout = {};
};

class TransformerBlock final : public Stage {
  public:
    TransformerBlock(const ParameterList& parameters, BlockParts parts)
        : Stage(parameters.all()), parts_(std::move(parts)) {}

    at::Tensor forward(const at::Tensor& x, const MicroBatch& batch) override {
        const BlockDropout dropout = batch.training ? parts_.dropout : BlockDropout{};
        const auto attend = [&](const at::Tensor& rows) {
            return parts_.attention.forward(rows, x.size(1), batch, dropout.attention);
        };
        // Rows of one matrix throughout: in-place sums on views would make autograd copy slices.
        const at::Tensor rows = x.flatten(0, 1);
        at::Tensor y;
        if (parts_.norm_first) {
            y = add_residual(rows, attend(normalise(parts_.norm1, rows)), dropout.branches);
            y = add_residual(y, feed_forward(normalise(parts_.norm2, y), dropout.hidden),
                             dropout.branches);
        } else {
            y = normalise(parts_.norm1, add_residual(rows, attend(rows), dropout.branches));
            y = normalise(parts_.norm2,
                          add_residual(y, feed_forward(y, dropout.hidden), dropout.branches));
        }
        return y.view(x.sizes());
    }

  private:
    at::Tensor feed_forward(const at::Tensor& x, double dropout) const {
        if (const auto* layer = std::get_if<FeedForward>(&parts_.feed_forward)) {
            return layer->forward(x, dropout);
        }
        return std::get<SwiGlu>(parts_.feed_forward).forward(x);
    }

    BlockParts parts_;
};

class TransformerModel : public Model {
  public:
    explicit TransformerModel(spec::ModelSpec spec) : spec_(std::move(spec)) {}

    const spec::ModelSpec& spec() const final { return spec_; }

    std::unique_ptr<Stage> make_stage(std::size_t index, std::vector<Parameter> parameters,
                                      const Computing& computing) const final {
        ensure(index < spec_.stages.size(), "a model has an embedding, its blocks and a head");
        ParameterList list(std::move(parameters), computing);
        std::unique_ptr<Stage> stage;
        if (index == 0) {
            stage = embedding(list);
        } else if (index + 1 < spec_.stages.size()) {
            stage = block(list);
        } else {
            stage = head(list);
        }
        ensure(list.empty(), "a stage gets no parameters but its own");
        return stage;
    }

  private:
    virtual std::unique_ptr<Stage> embedding(ParameterList& parameters) const = 0;
    virtual std::unique_ptr<Stage> block(ParameterList& parameters) const = 0;
    virtual std::unique_ptr<Stage> head(ParameterList& parameters) const = 0;

    spec::ModelSpec spec_;
};

class SimpleTransformerModel final : public TransformerModel {
  public:
    explicit SimpleTransformerModel(const spec::SimpleTransformer& model)
        : TransformerModel(spec::describe(model)), model_(model) {}

    bool causal() const override { return model_.causal; }

  private:
    static constexpr double kNormEpsilon = 1e-5;  ///< default of nn.TransformerEncoderLayer

    std::unique_ptr<Stage> embedding(ParameterList& parameters) const override {
        EmbeddingTables tables{parameters.take({model_.vocab_size, model_.d_model}), {}};
        if (model_.max_positions > 0) {
            tables.position = parameters.take({model_.max_positions, model_.d_model});
        }
        return make_embedding(parameters, std::move(tables), /*dropout=*/0.0);
    }

    /// nn.TransformerEncoderLayer(batch_first=True).
    std::unique_ptr<Stage> block(ParameterList& parameters) const override {
        const std::int64_t d = model_.d_model, ff = model_.d_ff;
        Linear in = take_linear(parameters, 3 * d, d);
        Linear out = take_linear(parameters, d, d);
        Linear linear1 = take_linear(parameters, ff, d);
        Linear linear2 = take_linear(parameters, d, ff);
        LayerNorm norm1 = take_layer_norm(parameters, d, kNormEpsilon);
        LayerNorm norm2 = take_layer_norm(parameters, d, kNormEpsilon);
        const Activation activation =
            model_.activation == spec::Activation::kRelu ? Activation::kRelu : Activation::kGelu;
        return std::make_unique<TransformerBlock>(
            parameters, BlockParts{.attention = {.in = std::move(in),
                                                 .out = std::move(out),
                                                 .num_heads = model_.num_heads,
                                                 .num_kv_heads = model_.num_heads,
                                                 .head_size = d / model_.num_heads,
                                                 .causal = model_.causal},
                                   .feed_forward = FeedForward{std::move(linear1),
                                                               std::move(linear2), activation},
                                   .norm1 = std::move(norm1),
                                   .norm2 = std::move(norm2),
                                   .norm_first = model_.norm_first,
                                   .dropout = {model_.dropout, model_.dropout, model_.dropout}});
    }

    std::unique_ptr<Stage> head(ParameterList& parameters) const override {
        return make_head(
            parameters, {},
            {take_linear(parameters, model_.vocab_size, model_.d_model), model_.vocab_size});
    }

    spec::SimpleTransformer model_;
};

class Gpt2Model final : public TransformerModel {
  public:
    explicit Gpt2Model(const spec::Gpt2& model)
        : TransformerModel(spec::describe(model)), model_(model) {}

  private:
    std::unique_ptr<Stage> embedding(ParameterList& parameters) const override {
        // Braces evaluate from left to right, here and below.
        EmbeddingTables tables{parameters.take({model_.padded_vocab_size, model_.d_model}),
                               parameters.take({model_.max_positions, model_.d_model})};
        return make_embedding(parameters, std::move(tables), model_.dropout);
    }

    std::unique_ptr<Stage> block(ParameterList& parameters) const override {
        const std::int64_t d = model_.d_model, ff = model_.d_ff;
        LayerNorm norm1 = take_layer_norm(parameters, d, model_.norm_eps);
        Linear in = take_linear(parameters, 3 * d, d);
        Linear out = take_linear(parameters, d, d);
        LayerNorm norm2 = take_layer_norm(parameters, d, model_.norm_eps);
        Linear linear1 = take_linear(parameters, ff, d);
        Linear linear2 = take_linear(parameters, d, ff);
        return std::make_unique<TransformerBlock>(
            parameters,
            BlockParts{.attention = {.in = std::move(in),
                                     .out = std::move(out),
                                     .num_heads = model_.num_heads,
                                     .num_kv_heads = model_.num_heads,
                                     .head_size = d / model_.num_heads,
                                     .causal = true},
                       .feed_forward = FeedForward{std::move(linear1), std::move(linear2),
                                                   Activation::kTanhGelu},
                       .norm1 = std::move(norm1),
                       .norm2 = std::move(norm2),
                       .dropout = {.attention = model_.dropout, .branches = model_.dropout}});
    }

    std::unique_ptr<Stage> head(ParameterList& parameters) const override {
        LayerNorm norm = take_layer_norm(parameters, model_.d_model, model_.norm_eps);
        return make_head(
            parameters, std::move(norm),
            {take_matrix(parameters, model_.padded_vocab_size, model_.d_model), model_.vocab_size});
    }

    spec::Gpt2 model_;
};

class LlamaModel final : public TransformerModel {
  public:
    explicit LlamaModel(const spec::Llama& model)
        : TransformerModel(spec::describe(model)), model_(model) {}

  private:
    std::unique_ptr<Stage> embedding(ParameterList& parameters) const override {
        EmbeddingTables tables{parameters.take({model_.padded_vocab_size, model_.d_model}), {}};
        return make_embedding(parameters, std::move(tables), /*dropout=*/0.0);
    }

    std::unique_ptr<Stage> block(ParameterList& parameters) const override {
        const std::int64_t d = model_.d_model, ff = model_.d_ff;
        const std::int64_t queries = model_.num_heads * model_.head_size;
        const std::int64_t keys = model_.num_kv_heads * model_.head_size;
        std::array<Linear, 3> in{take_matrix(parameters, queries, d),
                                 take_matrix(parameters, keys, d),
                                 take_matrix(parameters, keys, d)};
        Linear out = take_matrix(parameters, d, queries);
        SwiGlu feed_forward{take_matrix(parameters, ff, d), take_matrix(parameters, ff, d),
                            take_matrix(parameters, d, ff)};
        RmsNorm norm1 = take_rms_norm(parameters, d, model_.norm_eps);
        RmsNorm norm2 = take_rms_norm(parameters, d, model_.norm_eps);
        return std::make_unique<TransformerBlock>(
            parameters, BlockParts{.attention = {.in = std::move(in),
                                                 .out = std::move(out),
                                                 .num_heads = model_.num_heads,
                                                 .num_kv_heads = model_.num_kv_heads,
                                                 .head_size = model_.head_size,
                                                 .causal = true,
                                                 .rope = model_.rope},
                                   .feed_forward = std::move(feed_forward),
                                   .norm1 = std::move(norm1),
                                   .norm2 = std::move(norm2)});
    }

    std::unique_ptr<Stage> head(ParameterList& parameters) const override {
        RmsNorm norm = take_rms_norm(parameters, model_.d_model, model_.norm_eps);
        return make_head(
            parameters, std::move(norm),
            {take_matrix(parameters, model_.padded_vocab_size, model_.d_model), model_.vocab_size});
    }

    spec::Llama model_;
};

}  // namespace

std::shared_ptr<const Model> make_simple_transformer(const spec::SimpleTransformer& model) {
    return std::make_shared<SimpleTransformerModel>(model);
}

std::shared_ptr<const Model> make_gpt2(const spec::Gpt2& model) {
    return std::make_shared<Gpt2Model>(model);
}

std::shared_ptr<const Model> make_llama(const spec::Llama& model) {
    return std::make_shared<LlamaModel>(model);
}

}  // namespace fullshard::model
