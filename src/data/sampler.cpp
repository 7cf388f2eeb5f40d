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

/// A bijection of [0, 2^(2 half_bits)) for every key, and its inverse. half_bits <= 31 keeps round
/// and half apart in the value that is mixed.
class Feistel {
  public:
    Feistel(int half_bits, std::uint64_t key)
        : half_bits_(half_bits), mask_((std::uint64_t{1} << half_bits) - 1), key_(key) {}

    std::uint64_t forward(std::uint64_t value) const {
        std::uint64_t left = value >> half_bits_;
        std::uint64_t right = value & mask_;
        for (std::uint64_t round = 0; round < kRounds; ++round)
            left = std::exchange(right, left ^ scramble(round, right));
        return (left << half_bits_) | right;
    }
    std::uint64_t backward(std::uint64_t value) const {
        std::uint64_t left = value >> half_bits_;
        std::uint64_t right = value & mask_;
        for (std::uint64_t round = kRounds; round-- > 0;)
            right = std::exchange(left, right ^ scramble(round, left));
        return (left << half_bits_) | right;
    }

  private:
    std::uint64_t scramble(std::uint64_t round, std::uint64_t half) const {
        return mix(key_, (round << 32) | half) & mask_;
    }

    int half_bits_;
    std::uint64_t mask_;
    std::uint64_t key_;
};

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
    const Feistel permutation(half_bits_, key(index / samples_));
    auto value = static_cast<std::uint64_t>(position);
    do {
        value = permutation.forward(value);
    } while (value >= static_cast<std::uint64_t>(samples_));
    return static_cast<std::int64_t>(value);
}

std::int64_t Sampler::place(std::int64_t epoch, std::int64_t sample) const {
    ensure(epoch >= 0 && sample >= 0 && sample < samples_, "sample belongs to an epoch");
    if (!shuffle_) return sample;
    const Feistel permutation(half_bits_, key(epoch));
    auto value = static_cast<std::uint64_t>(sample);
    do {
        value = permutation.backward(value);
    } while (value >= static_cast<std::uint64_t>(samples_));
    return static_cast<std::int64_t>(value);
}

std::uint64_t Sampler::key(std::int64_t epoch) const {
    return mix(seed_, static_cast<std::uint64_t>(epoch));
}

}  // namespace fullshard::data
