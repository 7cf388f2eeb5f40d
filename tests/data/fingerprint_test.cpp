#include "base/rng.h"
#include "data/synthetic_source.h"
#include "data/toy_source.h"

#include <gtest/gtest.h>

#include <set>

namespace fullshard::data {
namespace {

TEST(Fingerprint, TellsTokensDocumentsAndMasksApart) {
    std::set<std::uint64_t> seen;
    const auto add = [&](const ToySource& source) {
        EXPECT_EQ(fingerprint(source), fingerprint(source));
        return seen.insert(fingerprint(source)).second;
    };
    const auto source = toy_documents({5000, 300});
    EXPECT_TRUE(add(*source));
    EXPECT_FALSE(add(*toy_documents({5000, 300})));
    auto other = *source;
    other.tokens.back() = 1;
    EXPECT_TRUE(add(other));
    other = *source;
    other.tokens.push_back(0);
    EXPECT_TRUE(add(other));
    other = *source;
    other.starts = {0, 4999};
    EXPECT_TRUE(add(other));
    other.starts = {0};
    EXPECT_TRUE(add(other));
    other = *source;
    other.loss_mask.assign(other.tokens.size(), 1);
    EXPECT_TRUE(add(other));
    other.loss_mask[4999] = 0;
    EXPECT_TRUE(add(other));
}

/// 2^42 tokens, of which `token` at `position` is another than the rest.
class LongSource final : public TokenSource {
  public:
    LongSource(std::int64_t size, std::int64_t position) : size_(size), position_(position) {}
    std::int64_t size() const override { return size_; }
    std::int64_t vocab_size() const override { return 2; }
    void read(std::int64_t first, std::span<std::int64_t> out) const override {
        for (std::int64_t& token : out) token = first++ == position_ ? 1 : 0;
    }
    std::string name() const override { return "long source"; }
    std::string locate(std::int64_t) const override { return "there"; }

  private:
    std::int64_t size_, position_;
};

TEST(Fingerprint, OfLongSourcesTakesSamplesTheirEndsIncluded) {
    const std::int64_t size = (std::int64_t{1} << 42) + 5;
    const std::uint64_t plain = fingerprint(LongSource(size, -1));
    EXPECT_NE(fingerprint(LongSource(size, 0)), plain);
    EXPECT_NE(fingerprint(LongSource(size, size - 1)), plain);
    EXPECT_NE(fingerprint(LongSource(size, std::int64_t{1} << 41)), plain);
    EXPECT_NE(fingerprint(LongSource(size + 1, -1)), plain);
}

}  // namespace
}  // namespace fullshard::data
