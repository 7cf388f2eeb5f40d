// Exact sums of squares: the global gradient norm must not depend on how gradients are sharded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace fullshard::kernels {

/// Sum of squares of floats without any rounding, hence equal for every order and partition.
///
/// A superaccumulator: the square of a float is an integer of 48 bits at most times 2^(2e), and the
/// sum is kept as one wide integer in units of 2^-298 (the square of the smallest float), cut into
/// int64 bins of 32 bits of weight each. 20 bins hold 2^63 squares of the largest float.
///
/// Partial sums of ranks merge by adding their bins as integers, in any order:
///
///     SquareSum local;
///     local.add(shard_gradient);
///     all_reduce(local.bins(), int64, sum);
///     const double norm = std::sqrt(local.value());
class SquareSum {
  public:
    static constexpr std::size_t kWeightBins = 20;
    static constexpr std::size_t kBins = kWeightBins + 2;

    /// Adds the squares of all values. Infinities and NaNs are counted, not added.
    void add(std::span<const float> values);

    /// All bins, least significant first, then the counts of infinities and of NaNs. Once add() has
    /// returned each weight bin is in [0, 2^32), so up to 2^30 sets of bins can be added
    /// elementwise into this memory before anything overflows; add() and value() accept the result.
    std::span<std::int64_t, kBins> bins() { return bins_; }
    std::span<const std::int64_t, kBins> bins() const { return bins_; }

    /// The sum, correctly rounded to double (nearest, ties to even). NaN when a NaN was added, else
    /// infinity when an infinity was: check `finite()` to tell a diverged gradient.
    double value() const;

    bool finite() const { return infinities() == 0 && nans() == 0; }
    std::int64_t infinities() const { return bins_[kWeightBins]; }
    std::int64_t nans() const { return bins_[kWeightBins + 1]; }

  private:
    std::array<std::int64_t, kBins> bins_{};
};

}  // namespace fullshard::kernels
