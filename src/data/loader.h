// Micro-batches by number: who asks for which one is the caller's affair.
#pragma once

#include "data/sampler.h"
#include "data/windows.h"

#include <cstdint>
#include <vector>

namespace fullshard::data {

/// One micro-batch in host memory. Hand the same object in again: its buffers are reused.
struct TokenBatch {
    std::vector<std::int64_t> tokens;   ///< [batch, sequence]
    std::vector<std::int64_t> targets;  ///< [batch, sequence]; kIgnoredTarget where nothing counts
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

/// Training data: an endless sequence of samples, epoch after epoch. Row `row` of micro-batch g of
/// a step with G micro-batches holds the sample at global index (step G + g) micro_batch + row;
/// batches run across the ends of epochs, so no sample is dropped or repeated within one.
class TrainingLoader {
  public:
    struct Shape {
        std::int64_t micro_batch = 1;    ///< sequences in a micro-batch
        std::int64_t micro_batches = 1;  ///< micro-batches in a step over all ranks: G = A W
    };

    /// Throws UsageError when a size is not positive.
    TrainingLoader(Windows windows, Shape shape, std::uint64_t seed, bool shuffle);

    const Windows& windows() const { return windows_; }
    /// Steps in an epoch, a fraction in general.
    double steps_per_epoch() const;

    /// Global index of the first sample of `step`: where the data stand before it.
    std::int64_t samples_before(std::int64_t step) const { return first_index(step, 0); }

    /// Fills micro-batch g in [0, G) of `step`; allocates only while `batch` grows.
    void load(std::int64_t step, std::int64_t g, TokenBatch& batch) const;
    /// Targets that are not ignored in all G micro-batches of `step`: every rank can compute the
    /// divisor of the loss by itself. Reads no data.
    std::int64_t valid_targets(std::int64_t step) const;

  private:
    std::int64_t first_index(std::int64_t step, std::int64_t g) const;

    Windows windows_;
    Shape shape_;
    Sampler sampler_;
};

/// Validation data: every window exactly once, in order. Row `row` of batch g holds window
/// g micro_batch + row; rows behind the last window are padding with ignored targets.
class ValidationLoader {
  public:
    /// Throws UsageError when `micro_batch` is not positive.
    ValidationLoader(Windows windows, std::int64_t micro_batch);

    const Windows& windows() const { return windows_; }
    /// Batches that hold data.
    std::int64_t batches() const;
    /// Batches that each of `world_size` ranks takes, numbered by micro_batch_index. The same for
    /// every rank: some may get wholly ignored ones at the end (valid_targets 0).
    std::int64_t rounds(std::int64_t world_size) const;

    /// Fills batch g >= 0; allocates only while `batch` grows.
    void load(std::int64_t g, TokenBatch& batch) const;

  private:
    Windows windows_;
    std::int64_t micro_batch_;
};

}  // namespace fullshard::data
