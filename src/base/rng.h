// Counter-based random numbers: a value is a pure function of (key, counter), never of call order,
// rank or world size.
#pragma once

#include "base/philox.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace fullshard {

/// Mixes `value` into `seed` (the finaliser of SplitMix64); used to derive independent streams.
std::uint64_t mix(std::uint64_t seed, std::uint64_t value);

/// FNV-1a, 64 bits: a stable hash of names, equal on every machine.
std::uint64_t stable_hash(std::string_view text);

/// A stream of random values addressed by element index.
class RandomStream {
  public:
    explicit RandomStream(std::uint64_t key) : key_(key) {}

    /// 64 random bits of element `index`.
    std::uint64_t bits(std::uint64_t index) const;
    /// Uniform in [0, 1) with 53 random bits.
    double uniform(std::uint64_t index) const;
    /// Standard normal by Box and Muller from the two uniforms of `index`.
    double normal(std::uint64_t index) const;
    /// Uniform integer in [0, bound) by multiplication of the high bits (bias below 2^-32 for any
    /// bound used here); bound must be positive.
    std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;

  private:
    std::array<std::uint32_t, 4> block(std::uint64_t index) const;
    std::uint64_t key_;
};

}  // namespace fullshard
