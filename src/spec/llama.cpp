#include "spec/llama.h"

#include "spec/parameters.h"

#include <fmt/format.h>

#include <string>

namespace fullshard::spec {
namespace {

ParameterSpec token_table(const Llama& model) {
    return token_matrix("model.embed_tokens.weight", model.vocab_size, model.padded_vocab_size,
                        model.d_model, normal(model.init_deviation));
}

StageSpec embedding_stage(const Llama& model) {
    return {"embedding", {token_table(model)}};
}

StageSpec block_stage(const Llama& model, std::int64_t index) {
    const std::int64_t d = model.d_model;
    const std::int64_t ff = model.d_ff;
    const std::int64_t queries = model.num_heads * model.head_size;
    const std::int64_t keys = model.num_kv_heads * model.head_size;
    const InitRule weight = normal(model.init_deviation);
    const std::string name = fmt::format("model.layers.{}", index);
    return {name,
            {
                matrix(name + ".self_attn.q_proj.weight", queries, d, weight),
                matrix(name + ".self_attn.k_proj.weight", keys, d, weight),
                matrix(name + ".self_attn.v_proj.weight", keys, d, weight),
                matrix(name + ".self_attn.o_proj.weight", d, queries, weight),
                matrix(name + ".mlp.gate_proj.weight", ff, d, weight),
                matrix(name + ".mlp.up_proj.weight", ff, d, weight),
                matrix(name + ".mlp.down_proj.weight", d, ff, weight),
                vector(name + ".input_layernorm.weight", d, constant(1.0)),
                vector(name + ".post_attention_layernorm.weight", d, constant(1.0)),
            },
            /*block=*/true};
}

StageSpec head_stage(const Llama& model) {
    ParameterSpec weight = token_matrix("lm_head.weight", model.vocab_size, model.padded_vocab_size,
                                        model.d_model, normal(model.init_deviation));
    if (model.tie_embeddings) weight = tied(weight, token_table(model));
    return {"head", {vector("model.norm.weight", model.d_model, constant(1.0)), weight}};
}

void require_valid(Mistakes& mistakes, const Rope& rope) {
    using Scaling = Rope::Scaling;
    // At a base of 1 all pairs turn alike, and YaRN divides by its logarithm.
    mistakes.require(rope.theta > 1.0,
                     fmt::format("model.rope_theta = {}: must be greater than 1", rope.theta));
    if (rope.scaling == Scaling::kNone) return;
    mistakes.require(rope.factor >= 1.0,
                     fmt::format("model.rope_factor = {}: must be at least 1", rope.factor));
    if (rope.scaling != Scaling::kLinear)
        mistakes.require_positive("model.rope_original_positions", rope.original_positions);
    if (rope.scaling == Scaling::kLlama3) {
        mistakes.require(rope.low_freq_factor > 0.0 && rope.high_freq_factor > rope.low_freq_factor,
                         fmt::format("model.rope_high_freq_factor = {} must be greater than "
                                     "model.rope_low_freq_factor = {}, and both greater than 0",
                                     rope.high_freq_factor, rope.low_freq_factor));
    }
    if (rope.scaling == Scaling::kYarn) {
        mistakes.require(rope.beta_slow > 0.0 && rope.beta_fast > rope.beta_slow,
                         fmt::format("model.rope_beta_fast = {} must be greater than "
                                     "model.rope_beta_slow = {}, and both greater than 0",
                                     rope.beta_fast, rope.beta_slow));
        mistakes.require(rope.attention_factor >= 0.0,
                         fmt::format("model.rope_attention_factor = {}: must be 0 (by the "
                                     "formula) or more",
                                     rope.attention_factor));
    }
}

void require_valid(const Llama& model) {
    Mistakes mistakes;
    mistakes.require_positive("model.vocab_size", model.vocab_size);
    require_padding(mistakes, model.vocab_size, model.padded_vocab_size);
    mistakes.require_positive("model.max_positions", model.max_positions);
    mistakes.require_positive("model.d_model", model.d_model);
    mistakes.require_positive("model.num_heads", model.num_heads);
    mistakes.require_positive("model.num_kv_heads", model.num_kv_heads);
    mistakes.require_positive("model.num_layers", model.num_layers);
    mistakes.require_positive("model.d_ff", model.d_ff);
    mistakes.require(model.head_size > 0 && model.head_size % 2 == 0,
                     fmt::format("model.head_size = {}: must be even and at least 2, since rotary "
                                 "positions turn pairs",
                                 model.head_size));
    require_deviations(mistakes, model.norm_eps, model.init_deviation);
    require_divisor(mistakes, "model.num_kv_heads", model.num_kv_heads, "model.num_heads",
                    model.num_heads);
    require_valid(mistakes, model.rope);
    mistakes.raise();
}

}  // namespace

ModelSpec describe(const Llama& model) {
    require_valid(model);
    return stack(
        "llama", embedding_stage(model), model.num_layers,
        [&](std::int64_t index) { return block_stage(model, index); }, head_stage(model));
}

double training_flops_per_token(const Llama& model, std::int64_t sequence) {
    const auto d = static_cast<double>(model.d_model);
    const auto layers = static_cast<double>(model.num_layers);
    const auto queries = static_cast<double>(model.num_heads * model.head_size);
    const auto keys = static_cast<double>(model.num_kv_heads * model.head_size);
    const double layer_weights =
        d * (2.0 * queries + 2.0 * keys) + 3.0 * d * static_cast<double>(model.d_ff);
    const double head_weights = d * static_cast<double>(model.vocab_size);
    return training_flops(layers * layer_weights + head_weights, layers * queries, sequence);
}

}  // namespace fullshard::spec
