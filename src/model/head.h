// The last stage: vectors to logits and loss.
#pragma once

#include "model/linear.h"
#include "model/norm.h"
#include "model/stage.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace fullshard::model {

/// A linear layer whose outputs are the logits of a vocabulary.
struct OutputLayer {
    Linear linear;  ///< [vocab_size or more rows, d_model]
    /// Rows behind have no logits, and a gradient of zero.
    std::int64_t vocab_size;
};

/// The stage's parameters are those of `parameters`; `norm` comes before the linear layer.
std::unique_ptr<HeadStage> make_head(const ParameterList& parameters, std::optional<Norm> norm,
                                     OutputLayer output);

/// Rows of logits that the head's loss holds at once: about 4 MiB, which stays in the last-level
/// cache, but at least 64 rows. The logits of a whole micro-batch never exist. Each chunk reads the
/// weight and updates its gradient as a whole; with 64 rows that is 32 and 16 operations a byte,
/// enough not to wait for memory.
std::int64_t loss_chunk_rows(std::int64_t vocab_size);

}  // namespace fullshard::model
