#include "base/rng.h"
#include "data/token_source.h"

#include <algorithm>
#include <array>

namespace fullshard::data {
namespace {

constexpr std::int64_t kReadWhole = std::int64_t{1} << 26;  ///< tokens
constexpr std::int64_t kBlock = 4096;
constexpr std::int64_t kBlocks = 1024;

class Hash {
  public:
    explicit Hash(const TokenSource& source) : source_(source) {
        add(source.size());
        add(source.has_loss_mask() ? 1 : 0);
        add(std::ssize(source.documents()));
    }

    void add(std::int64_t value) { value_ = mix(value_, static_cast<std::uint64_t>(value)); }

    void add_tokens(std::int64_t first, std::int64_t count) {
        const auto tokens = std::span(tokens_).first(static_cast<std::size_t>(count));
        source_.read(first, tokens);
        for (const std::int64_t token : tokens) add(token);
        if (!source_.has_loss_mask()) return;
        const auto mask = std::span(loss_mask_).first(tokens.size());
        source_.read_loss_mask(first, mask);
        for (const std::uint8_t counts : mask) add(counts);
    }

    std::uint64_t value() const { return value_; }

  private:
    const TokenSource& source_;
    std::array<std::int64_t, kBlock> tokens_;
    std::array<std::uint8_t, kBlock> loss_mask_;
    std::uint64_t value_ = 0;
};

}  // namespace

std::uint64_t fingerprint(const TokenSource& source) {
    Hash hash(source);
    const std::int64_t size = source.size();
    if (size <= kReadWhole) {
        for (std::int64_t first = 0; first < size; first += kBlock)
            hash.add_tokens(first, std::min(kBlock, size - first));
        for (const std::int64_t start : source.documents()) hash.add(start);
        return hash.value();
    }
    // Evenly spaced, the last block at the very end. Divided first: size * kBlocks may overflow.
    for (std::int64_t i = 0; i + 1 < kBlocks; ++i) hash.add_tokens(size / kBlocks * i, kBlock);
    hash.add_tokens(size - kBlock, kBlock);
    const auto documents = source.documents();
    const std::int64_t stride = std::ssize(documents) / kBlocks + 1;
    for (std::int64_t i = 0; i < std::ssize(documents); i += stride)
        hash.add(documents[static_cast<std::size_t>(i)]);
    return hash.value();
}

}  // namespace fullshard::data
