// Several sources in fixed shares: a pure function of (seed, index).
#pragma once

#include "data/sampler.h"

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::data {

/// Maps the global sample index to a source and the index in that source's own endless sequence of
/// samples. Every block of 1024 indices holds each source exactly as often as its share says,
/// rounded by the largest remainder, so a source's epochs depend on its share and size only. The
/// order inside a block is a permutation keyed by (seed, block); without `shuffle` it is the same
/// even interleaving in every block. One source alone is the identity.
class Mixture {
  public:
    static constexpr std::int64_t kBlock = 1024;

    struct Draw {
        std::int64_t source = 0;
        std::int64_t index = 0;  ///< among the samples of the source, counted through its epochs
        bool operator==(const Draw&) const = default;
    };

    /// Throws UsageError naming the number of a source whose weight is not positive and finite, or
    /// too small for one sample in a block.
    Mixture(std::span<const double> weights, std::uint64_t seed, bool shuffle);

    std::int64_t sources() const { return static_cast<std::int64_t>(in_block_.size()); }
    /// Samples of a source in a block.
    std::int64_t in_block(std::int64_t source) const {
        return in_block_.at(static_cast<std::size_t>(source));
    }
    /// What `index`, which must not be negative, stands for.
    Draw draw(std::int64_t index) const;

  private:
    std::vector<std::int64_t> in_block_;
    std::vector<Draw> pattern_;  ///< of a block, in the order without shuffling
    Sampler places_;             ///< an epoch of it is a block
};

}  // namespace fullshard::data
