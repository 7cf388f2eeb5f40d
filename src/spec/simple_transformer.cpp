#include "spec/simple_transformer.h"

#include "spec/parameters.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace fullshard::spec {
namespace {

/// nn.Linear.reset_parameters: kaiming_uniform(a = sqrt(5)) is uniform within 1 / sqrt(fan_in), and
/// so is the bias.
InitRule linear_init(std::int64_t fan_in) {
    return uniform(1.0 / std::sqrt(static_cast<double>(fan_in)));
}

/// nn.init.xavier_uniform_.
InitRule xavier_uniform(std::int64_t fan_in, std::int64_t fan_out) {
    return uniform(std::sqrt(6.0 / static_cast<double>(fan_in + fan_out)));
}

/// nn.Embedding draws from N(0, 1).
ParameterSpec token_table(const SimpleTransformer& model) {
    return matrix("embedding.weight", model.vocab_size, model.d_model, normal(1.0));
}

/// Positions are added to token embeddings: at equal variance they would hide half of the tokens'
/// signal from the first step on, so they start with the deviation that GPT-2 and BERT use.
StageSpec embedding_stage(const SimpleTransformer& model) {
    StageSpec stage{"embedding", {token_table(model)}};
    if (model.max_positions > 0)
        stage.parameters.push_back(
            matrix("position.weight", model.max_positions, model.d_model, normal(0.02)));
    return stage;
}

/// nn.TransformerEncoderLayer. nn.MultiheadAttention treats query, key and value projections as one
/// [3 d, d] matrix when it draws them, hence fan_out = 3 d.
StageSpec encoder_layer_stage(const SimpleTransformer& model, std::int64_t index) {
    const std::int64_t d = model.d_model;
    const std::int64_t ff = model.d_ff;
    const std::string name = fmt::format("layers.{}", index);
    return {name,
            {
                matrix(name + ".self_attn.in_proj_weight", 3 * d, d, xavier_uniform(d, 3 * d)),
                vector(name + ".self_attn.in_proj_bias", 3 * d, constant(0.0)),
                matrix(name + ".self_attn.out_proj.weight", d, d, linear_init(d)),
                vector(name + ".self_attn.out_proj.bias", d, constant(0.0)),
                matrix(name + ".linear1.weight", ff, d, linear_init(d)),
                vector(name + ".linear1.bias", ff, linear_init(d)),
                matrix(name + ".linear2.weight", d, ff, linear_init(ff)),
                vector(name + ".linear2.bias", d, linear_init(ff)),
                vector(name + ".norm1.weight", d, constant(1.0)),
                vector(name + ".norm1.bias", d, constant(0.0)),
                vector(name + ".norm2.weight", d, constant(1.0)),
                vector(name + ".norm2.bias", d, constant(0.0)),
            },
            /*block=*/true};
}

StageSpec head_stage(const SimpleTransformer& model) {
    ParameterSpec weight =
        matrix("head.weight", model.vocab_size, model.d_model, linear_init(model.d_model));
    if (model.tie_embeddings) weight = tied(weight, token_table(model));
    return {"head", {weight, vector("head.bias", model.vocab_size, linear_init(model.d_model))}};
}

void require_valid(const SimpleTransformer& model) {
    Mistakes mistakes;
    mistakes.require_positive("model.vocab_size", model.vocab_size);
    mistakes.require_positive("model.d_model", model.d_model);
    mistakes.require_positive("model.num_heads", model.num_heads);
    mistakes.require_positive("model.num_layers", model.num_layers);
    mistakes.require_positive("model.d_ff", model.d_ff);
    mistakes.require(model.max_positions >= 0,
                     fmt::format("model.max_positions = {}: must be 0 (no positions) or more",
                                 model.max_positions));
    require_probability(mistakes, "model.dropout", model.dropout);
    require_divisor(mistakes, "model.num_heads", model.num_heads, "model.d_model", model.d_model);
    mistakes.raise();
}

}  // namespace

ModelSpec describe(const SimpleTransformer& model) {
    require_valid(model);
    return stack(
        "simple_transformer", embedding_stage(model), model.num_layers,
        [&](std::int64_t index) { return encoder_layer_stage(model, index); }, head_stage(model));
}

double training_flops_per_token(const SimpleTransformer& model, std::int64_t sequence) {
    return plain_training_flops(model, sequence);
}

}  // namespace fullshard::spec
