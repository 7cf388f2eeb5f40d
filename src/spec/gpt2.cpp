#include "spec/gpt2.h"

#include "spec/parameters.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace fullshard::spec {
namespace {

ParameterSpec token_table(const Gpt2& model) {
    return token_matrix("transformer.wte.weight", model.vocab_size, model.padded_vocab_size,
                        model.d_model, normal(model.init_deviation));
}

StageSpec embedding_stage(const Gpt2& model) {
    return {"embedding",
            {token_table(model), matrix("transformer.wpe.weight", model.max_positions,
                                        model.d_model, normal(model.init_deviation))}};
}

StageSpec block_stage(const Gpt2& model, std::int64_t index) {
    const std::int64_t d = model.d_model;
    const std::int64_t ff = model.d_ff;
    const InitRule weight = normal(model.init_deviation);
    // Each of the 2 N branches adds to the residual: "a factor of 1/sqrt(N) where N is the number
    // of residual layers" (Radford et al., 2019, section 2.3).
    const InitRule onto_residual =
        normal(model.init_deviation / std::sqrt(2.0 * static_cast<double>(model.num_layers)));
    const std::string name = fmt::format("transformer.h.{}", index);
    return {name,
            {
                vector(name + ".ln_1.weight", d, constant(1.0)),
                vector(name + ".ln_1.bias", d, constant(0.0)),
                matrix(name + ".attn.c_attn.weight", 3 * d, d, weight),
                vector(name + ".attn.c_attn.bias", 3 * d, constant(0.0)),
                matrix(name + ".attn.c_proj.weight", d, d, onto_residual),
                vector(name + ".attn.c_proj.bias", d, constant(0.0)),
                vector(name + ".ln_2.weight", d, constant(1.0)),
                vector(name + ".ln_2.bias", d, constant(0.0)),
                matrix(name + ".mlp.c_fc.weight", ff, d, weight),
                vector(name + ".mlp.c_fc.bias", ff, constant(0.0)),
                matrix(name + ".mlp.c_proj.weight", d, ff, onto_residual),
                vector(name + ".mlp.c_proj.bias", d, constant(0.0)),
            },
            /*block=*/true};
}

StageSpec head_stage(const Gpt2& model) {
    ParameterSpec weight = token_matrix("lm_head.weight", model.vocab_size, model.padded_vocab_size,
                                        model.d_model, normal(model.init_deviation));
    if (model.tie_embeddings) weight = tied(weight, token_table(model));
    return {"head",
            {vector("transformer.ln_f.weight", model.d_model, constant(1.0)),
             vector("transformer.ln_f.bias", model.d_model, constant(0.0)), weight}};
}

void require_valid(const Gpt2& model) {
    Mistakes mistakes;
    mistakes.require_positive("model.vocab_size", model.vocab_size);
    require_padding(mistakes, model.vocab_size, model.padded_vocab_size);
    mistakes.require_positive("model.max_positions", model.max_positions);
    mistakes.require_positive("model.d_model", model.d_model);
    mistakes.require_positive("model.num_heads", model.num_heads);
    mistakes.require_positive("model.num_layers", model.num_layers);
    mistakes.require_positive("model.d_ff", model.d_ff);
    require_probability(mistakes, "model.dropout", model.dropout);
    require_deviations(mistakes, model.norm_eps, model.init_deviation);
    require_divisor(mistakes, "model.num_heads", model.num_heads, "model.d_model", model.d_model);
    mistakes.raise();
}

}  // namespace

ModelSpec describe(const Gpt2& model) {
    require_valid(model);
    return stack(
        "gpt2", embedding_stage(model), model.num_layers,
        [&](std::int64_t index) { return block_stage(model, index); }, head_stage(model));
}

double training_flops_per_token(const Gpt2& model, std::int64_t sequence) {
    return plain_training_flops(model, sequence);
}

}  // namespace fullshard::spec
