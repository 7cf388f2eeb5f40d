#include "data/sampler.h"

#include "base/error.h"
#include "base/rng.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace fullshard::data {
namespace {

constexpr std::uint64_t kRounds = 8;
constexpr std::int64_t kMaxSamples = std::int64_t{1} << 62;

/// A bijection of [0, 2^(2 half_bits)) for every key. half_bits <= 31 keeps round and half apart in
/// the value that is mixed.
std::uint64_t feistel(std::uint64_t value, int half_bits, std::uint64_t key) {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round)
        left = std::exchange(right, left ^ (mix(key, (round << 32) | right) & mask));
    return (left << half_bits) | right;
}

}  // namespace

Sampler::Sampler(std::uint64_t seed, std::int64_t samples, bool shuffle)
    : seed_(mix(seed, stable_hash("data.order"))),
      samples_(samples),
      shuffle_(shuffle),
      half_bits_(1) {
    ensure(samples >= 1 && samples <= kMaxSamples, "number of samples is in [1, 2^62]");
    const int bits = std::bit_width(static_cast<std::uint64_t>(samples - 1));
    half_bits_ = std::max(1, (bits + 1) / 2);
}

std::int64_t Sampler::sample(std::int64_t index) const {
    ensure(index >= 0, "sample index is not negative");
    const std::int64_t position = index % samples_;
    if (!shuffle_) return position;
    const std::uint64_t key = mix(seed_, static_cast<std::uint64_t>(index / samples_));
    auto value = static_cast<std::uint64_t>(position);
    do {
        value = feistel(value, half_bits_, key);
    } while (value >= static_cast<std::uint64_t>(samples_));
    return static_cast<std::int64_t>(value);
}

}  // namespace fullshard::data
