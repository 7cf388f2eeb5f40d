// Adds the gradients of a step's micro-batches.
#pragma once

#include "shard/store_options.h"

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::shard {

/// A binary counter of partial sums: level k holds the sum of 2^k consecutive contributions.
/// Together with a tree over the ranks inside each contribution this is the balanced binary tree
/// over all micro-batches, so that (ranks, accumulation) = (1, 4), (2, 2) and (4, 1) give equal
/// bits.
///
/// Under SumOrder::kFast contributions are added as they come, with two buffers however many there
/// are: one holds the sum, the next contribution arrives in the other.
class TreeAccumulator {
  public:
    /// Buffers that `contributions` of them need.
    static std::int64_t levels_for(std::int64_t contributions, SumOrder order);

    /// `memory` holds `levels` buffers of equal length and outlives the accumulator.
    TreeAccumulator(std::span<float> memory, std::int64_t levels, SumOrder order);

    void reset() { count_ = 0; }
    /// Where the next contribution must be written; valid until `commit`.
    std::span<float> target() const;
    /// The contribution in `target` is complete: carry it up.
    void commit();
    /// Sums what is left in the levels; the result stays valid until the next `reset`. Call once,
    /// after the last contribution (there was at least one).
    void finish();
    std::span<float> result() const { return result_; }

  private:
    std::span<float> level(std::int64_t index) const;
    std::int64_t target_level() const;

    std::span<float> memory_;
    std::int64_t levels_;
    SumOrder order_;
    std::uint64_t count_ = 0;
    std::span<float> result_;
};

}  // namespace fullshard::shard
