// The order of samples: a pure function of (seed, index).
#pragma once

#include <cstdint>

namespace fullshard::data {

/// Maps the global sample index, which counts on through all epochs, to a sample. Epoch e is the
/// indices [e n, (e + 1) n); each holds every sample exactly once, in an order of its own.
///
/// The order is a permutation in constant memory: an eight-round Feistel network on the smallest
/// even number of bits that holds n, keyed by (seed, epoch), whose value is fed back until it falls
/// below n (cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). The
/// domain is less than 4 n, so fewer than four passes are needed on average. Four rounds already
/// make a pseudo-random permutation of large domains (Luby and Rackoff, 1988); small ones need
/// more.
class Sampler {
  public:
    /// `samples` in [1, 2^62]; without `shuffle` every epoch runs through the samples in order.
    Sampler(std::uint64_t seed, std::int64_t samples, bool shuffle);

    std::int64_t samples() const { return samples_; }
    /// The sample at `index`, which must not be negative.
    std::int64_t sample(std::int64_t index) const;
    /// The place in [0, samples()) at which epoch `epoch` visits `sample`: the inverse of sample().
    std::int64_t place(std::int64_t epoch, std::int64_t sample) const;

  private:
    std::uint64_t key(std::int64_t epoch) const;

    std::uint64_t seed_;
    std::int64_t samples_;
    bool shuffle_;
    int half_bits_;
};

}  // namespace fullshard::data
