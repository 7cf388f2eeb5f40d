// Micro-batches by number: who asks for which one is the caller's affair.
#pragma once

#include "data/mixture.h"
#include "data/sampler.h"
#include "data/token_batch.h"
#include "data/windows.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fullshard::data {

/// One of the sources that are trained on.
struct TrainingSource {
    std::string name;  ///< unique
    Windows windows;
    double weight = 1.0;  ///< its share of the samples, relative to the others'
};

/// Which window of which source a sample is.
struct SampleId {
    std::int64_t source = 0;
    std::int64_t window = 0;
    auto operator<=>(const SampleId&) const = default;
};

/// Training data: an endless sequence of samples, each source in epoch after epoch of its own. Row
/// `row` of micro-batch g of a step with G micro-batches holds the sample at global index
/// (step G + g) micro_batch + row; batches run across the ends of epochs, so no sample is dropped
/// or repeated within one. Nothing changes after construction: several threads may load at once.
class TrainingLoader {
  public:
    struct Shape {
        std::int64_t micro_batch = 1;    ///< sequences in a micro-batch
        std::int64_t micro_batches = 1;  ///< micro-batches in a step over all ranks: G = A W
    };

    /// Throws UsageError when a size is not positive.
    TrainingLoader(Windows windows, Shape shape, std::uint64_t seed, bool shuffle);
    /// One source alone is read in the same order as by the constructor above. Throws UsageError as
    /// Mixture does as well. The windows of all sources are cut to one length and in one way.
    TrainingLoader(std::vector<TrainingSource> sources, Shape shape, std::uint64_t seed,
                   bool shuffle);

    std::span<const TrainingSource> sources() const { return sources_; }
    const Windows& windows(std::int64_t source = 0) const;
    /// Steps in an epoch of a source, a fraction in general.
    double steps_per_epoch(std::int64_t source = 0) const;

    /// Global index of the first sample of `step`: where the data stand before it.
    std::int64_t samples_before(std::int64_t step) const { return first_index(step, 0); }
    /// The sample at a global index, which does not depend on how steps are shared out.
    SampleId sample(std::int64_t index) const;

    /// Fills micro-batch g in [0, G) of `step`; allocates only while `batch` grows.
    void load(std::int64_t step, std::int64_t g, TokenBatch& batch) const;
    /// Targets that are not ignored in all G micro-batches of `step`: every rank can compute the
    /// divisor of the loss by itself. Reads no data.
    std::int64_t valid_targets(std::int64_t step) const;
    /// The same for each source: adds them to `by_source`, which has one element a source.
    void add_valid_targets(std::int64_t step, std::span<std::int64_t> by_source) const;
    /// Valid targets of each source in all steps before `step`. Reads no data; where numbers of
    /// valid targets differ from window to window, it looks up those of the current epoch.
    std::vector<std::int64_t> valid_targets_before(std::int64_t step) const;

  private:
    std::int64_t first_index(std::int64_t step, std::int64_t g) const;
    /// Of the samples at global indices [first, end).
    void add_valid_targets(std::int64_t first, std::int64_t end,
                           std::span<std::int64_t> by_source) const;
    /// Valid targets of the first `samples` samples of a source.
    std::int64_t valid_targets_of_first(std::int64_t source, std::int64_t samples) const;

    std::vector<TrainingSource> sources_;
    std::vector<Sampler> samplers_;
    Mixture mixture_;
    Shape shape_;
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
