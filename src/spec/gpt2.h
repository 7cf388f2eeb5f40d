// GPT-2: pre-norm decoder with learned positions.
#pragma once

#include "spec/model_spec.h"

#include <cstdint>

namespace fullshard::spec {

/// Hyper-parameters; the defaults are those of the 124 million parameter model (Radford et al.,
/// 2019).
struct Gpt2 {
    std::int64_t vocab_size = 50257;
    /// Rows of the token table, vocab_size or more: those behind start as zeros, get no gradient
    /// and have no logits.
    std::int64_t padded_vocab_size = 50257;
    std::int64_t max_positions = 1024;
    std::int64_t d_model = 768;
    std::int64_t num_heads = 12;
    std::int64_t num_layers = 12;
    std::int64_t d_ff = 3072;
    double dropout = 0.1;  ///< of the embedding's sum, attention weights and both branches
    double norm_eps = 1e-5;
    double init_deviation = 0.02;
    bool tie_embeddings = true;

    bool operator==(const Gpt2&) const = default;
};

/// Stages `embedding`, `transformer.h.0` ... `transformer.h.N-1`, `head`; the middle ones are the
/// blocks. Parameters have the names of transformers' GPT2LMHeadModel, in the order of its
/// named_parameters(), but weights of linear layers are [out, in] as everywhere here, where that
/// class has [in, out]. With `tie_embeddings`, "lm_head.weight" is tied to
/// "transformer.wte.weight". Initial weights as published: normal with init_deviation, those of
/// `attn.c_proj` and `mlp.c_proj` divided by sqrt(2 num_layers); biases 0, norms 1. Throws
/// UsageError that lists every wrong value.
ModelSpec describe(const Gpt2& model);

/// As that of SimpleTransformer.
double training_flops_per_token(const Gpt2& model, std::int64_t sequence);

}  // namespace fullshard::spec
