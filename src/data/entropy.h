// What a model that ignores all context can reach at best.
#pragma once

#include "data/token_source.h"

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::data {

/// How often each of `vocab_size` tokens occurs. Throws DataError naming the offset of a token
/// outside the vocabulary.
std::vector<std::int64_t> count_tokens(std::span<const std::int64_t> tokens,
                                       std::int64_t vocab_size);
/// The same for a part of a source, in constant extra memory.
std::vector<std::int64_t> count_tokens(const TokenSource& source, TokenRange range);

/// Entropy -sum p ln p of the distribution that the counts describe, in nats; 0 without counts. Of
/// the tokens of a text it is the least cross-entropy per token that any fixed distribution
/// reaches.
double entropy(std::span<const std::int64_t> counts);

double unigram_entropy(std::span<const std::int64_t> tokens, std::int64_t vocab_size);
double unigram_entropy(const TokenSource& source, TokenRange range);

}  // namespace fullshard::data
