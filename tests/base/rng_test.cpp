#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fullshard {
namespace {

// Known answers of Random123's distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
              (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    EXPECT_EQ(
        philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
        (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(
        philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
        (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(StableHash, KnownAnswers) {
    EXPECT_EQ(stable_hash(""), 0xcbf29ce484222325ULL);
    EXPECT_EQ(stable_hash("a"), 0xaf63dc4c8601ec8cULL);
    EXPECT_EQ(stable_hash("foobar"), 0x85944171f73967e8ULL);
}

TEST(RandomStream, MomentsOfNormalAndUniform) {
    const RandomStream stream(mix(1, 2));
    constexpr int kCount = 100000;
    double sum = 0, squares = 0, uniform_sum = 0;
    for (int i = 0; i < kCount; ++i) {
        const double x = stream.normal(i);
        sum += x;
        squares += x * x;
        uniform_sum += stream.uniform(i);
    }
    EXPECT_NEAR(sum / kCount, 0.0, 5.0 / std::sqrt(kCount));
    EXPECT_NEAR(squares / kCount, 1.0, 5.0 * std::sqrt(2.0 / kCount));
    EXPECT_NEAR(uniform_sum / kCount, 0.5, 5.0 / std::sqrt(12.0 * kCount));
}

TEST(RandomStream, BelowStaysInRangeAndHitsEveryValue) {
    const RandomStream stream(7);
    std::array<int, 5> hits{};
    for (int i = 0; i < 5000; ++i) ++hits.at(stream.below(i, 5));
    for (const int count : hits) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace fullshard
