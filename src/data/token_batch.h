// What a model is given at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace fullshard::data {

/// One micro-batch in host memory. Hand the same object in again: its buffers are reused.
struct TokenBatch {
    std::vector<std::int64_t> tokens;   ///< [batch, sequence]
    std::vector<std::int64_t> targets;  ///< [batch, sequence]; kIgnoredTarget where nothing counts
    /// [batch, sequence], or empty where documents are not told apart: each token's position in its
    /// document, counted from the row's start where an earlier row holds the document's beginning,
    /// and the number of that document in its row. Padding is a document of its own.
    std::vector<std::int64_t> positions = {};
    std::vector<std::int64_t> documents = {};
    std::int64_t batch = 0;
    std::int64_t sequence = 0;
    std::int64_t valid_targets = 0;  ///< targets that are not ignored
};

/// The micro-batches of a step are numbered g = a W + r: rank r of W takes number g as its
/// `accumulation`-th (a). The data of a step depends on their total A W only.
constexpr std::int64_t micro_batch_index(std::int64_t accumulation, std::int64_t rank,
                                         std::int64_t world_size) {
    return accumulation * world_size + rank;
}

}  // namespace fullshard::data
