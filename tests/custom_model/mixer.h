// An example of one's own model: a causal MLP mixer of torch::nn modules.
#pragma once

#include "model/model.h"

#include <cstdint>
#include <memory>

namespace mixer {

struct Options {
    std::int64_t vocab_size = 256;
    std::int64_t width = 64;
    std::int64_t blocks = 2;
    std::int64_t kernel = 4;  ///< tokens that a block mixes: each with those before it
    double dropout = 0.1;
};

/// Embedding, blocks that mix first tokens, then channels, and a head with the embedding's weight.
std::shared_ptr<const fullshard::model::Model> make_mixer(const Options& options);

}  // namespace mixer
