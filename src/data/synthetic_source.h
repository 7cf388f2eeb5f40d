// Random tokens for measurements and tests: no file needed.
#pragma once

#include "base/rng.h"
#include "data/token_source.h"

#include <memory>

namespace fullshard::data {

/// `sequences` sequences of `sequence_length` tokens, one after the other, drawn independently and
/// uniformly from [0, vocab_size). Nothing is stored: token i is a function of (seed, i).
class SyntheticSource final : public TokenSource {
  public:
    /// Throws UsageError when a size is not positive.
    SyntheticSource(std::uint64_t seed, std::int64_t sequences, std::int64_t sequence_length,
                    std::int64_t vocab_size);

    std::int64_t size() const override { return sequences_ * sequence_length_; }
    std::int64_t vocab_size() const override { return vocab_size_; }
    void read(std::int64_t first, std::span<std::int64_t> out) const override;
    std::string name() const override;
    std::string locate(std::int64_t position) const override;

  private:
    RandomStream stream_;
    std::int64_t sequences_;
    std::int64_t sequence_length_;
    std::int64_t vocab_size_;
};

}  // namespace fullshard::data
