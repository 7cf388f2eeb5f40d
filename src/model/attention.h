// Multi-head self-attention.
#pragma once

#include "model/linear.h"
#include "model/micro_batch.h"
#include "spec/rope.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <variant>

namespace fullshard::model {

/// softmax(q k^T / sqrt(head_size)) v for each head; `num_heads / num_kv_heads` consecutive heads
/// share keys and values (grouped queries; Ainslie et al., 2023).
struct Attention {
    /// Query, key and value of all heads: rows of one matrix in this order, or a matrix each.
    std::variant<Linear, std::array<Linear, 3>> in;
    Linear out;  ///< num_heads * head_size to d_model
    std::int64_t num_heads;
    std::int64_t num_kv_heads;  ///< num_heads where `in` is one matrix
    std::int64_t head_size;
    bool causal;                          ///< unless the batch has a mask
    std::optional<spec::Rope> rope = {};  ///< turns queries and keys by their positions

    /// [rows, d_model] to the same shape; each `sequence` rows are one sequence of the batch. Drops
    /// attention weights with probability `dropout`.
    at::Tensor forward(const at::Tensor& x, std::int64_t sequence, const MicroBatch& batch,
                       double dropout) const;
};

}  // namespace fullshard::model
