// Llama and the models of its shape.
#pragma once

#include "spec/model_spec.h"
#include "spec/rope.h"

#include <cstdint>

namespace fullshard::spec {

/// Hyper-parameters; the defaults are those of Llama 2 with 7 billion parameters.
struct Llama {
    std::int64_t vocab_size = 32000;
    std::int64_t padded_vocab_size = 32000;  ///< as Gpt2's
    std::int64_t max_positions = 4096;       ///< longest sequence, tokens; no parameter has it
    std::int64_t d_model = 4096;
    std::int64_t num_heads = 32;
    std::int64_t num_kv_heads = 32;  ///< divides num_heads; consecutive heads share one
    std::int64_t head_size = 128;    ///< even; num_heads * head_size may differ from d_model
    std::int64_t num_layers = 32;
    std::int64_t d_ff = 11008;
    double norm_eps = 1e-5;
    double init_deviation = 0.02;
    bool tie_embeddings = false;
    Rope rope = {};

    bool operator==(const Llama&) const = default;
};

/// Stages `embedding`, `model.layers.0` ... `model.layers.N-1`, `head`; the middle ones are the
/// blocks. Parameters have the names and shapes of transformers' LlamaForCausalLM, in the order of
/// its named_parameters(); "lm_head.weight" is tied to "model.embed_tokens.weight" with
/// `tie_embeddings`. Initial weights are normal with init_deviation, norms 1. Throws UsageError
/// that lists every wrong value.
ModelSpec describe(const Llama& model);

/// As that of SimpleTransformer.
double training_flops_per_token(const Llama& model, std::int64_t sequence);

}  // namespace fullshard::spec
