// The SimpleTransformer: embedding, N transformer encoder layers, linear head.
#pragma once

#include "spec/model_spec.h"

#include <cstdint>
#include <string_view>

namespace fullshard::spec {

enum class Activation : std::uint8_t { kRelu, kGelu };

/// Hyper-parameters, with the names and defaults of PyTorch's TransformerEncoderLayer.
struct SimpleTransformer {
    std::int64_t vocab_size = 1000;
    std::int64_t d_model = 256;
    std::int64_t num_heads = 4;
    std::int64_t num_layers = 3;
    std::int64_t d_ff = 2048;
    std::int64_t max_positions = 0;  ///< rows of the learned position table; 0: no positions
    double dropout = 0.1;
    Activation activation = Activation::kRelu;
    bool norm_first = false;  ///< pre-norm instead of post-norm
    bool causal = true;
    bool tie_embeddings = false;  ///< the head's weight is the embedding's
};

/// Stages `embedding`, `layers.0` ... `layers.N-1`, `head`. Parameter names, shapes and initial
/// distributions are those of a PyTorch module with the attributes `embedding` (nn.Embedding),
/// `position` (nn.Embedding, only with max_positions > 0), `layers` (nn.ModuleList of
/// nn.TransformerEncoderLayer, batch_first=True) and `head` (nn.Linear), in the order of its
/// named_parameters(); `position` is the one exception: it starts with standard deviation 0.02.
/// With `tie_embeddings`, "head.weight" is tied to "embedding.weight". The encoder layers are the
/// blocks. Throws UsageError that lists every wrong value: a size that is not positive, num_heads
/// that does not divide d_model, dropout outside [0, 1).
ModelSpec describe(const SimpleTransformer& model);

/// Floating-point operations of one training step per token (forward plus backward): 6 per weight
/// used in a matrix product plus 12 * layers * d_model * sequence for attention (PaLM, appendix B).
double training_flops_per_token(const SimpleTransformer& model, std::int64_t sequence);

}  // namespace fullshard::spec
