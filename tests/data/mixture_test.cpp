#include "data/mixture.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <vector>

namespace fullshard::data {
namespace {

using Counts = std::vector<std::int64_t>;

Counts shares(const std::vector<double>& weights) {
    const Mixture mixture(weights, 1, true);
    Counts counts;
    for (std::int64_t s = 0; s < mixture.sources(); ++s) counts.push_back(mixture.in_block(s));
    return counts;
}

TEST(Mixture, SharesByTheLargestRemainder) {
    EXPECT_EQ(shares({1.0}), (Counts{1024}));
    EXPECT_EQ(shares({1.0, 1.0}), (Counts{512, 512}));
    EXPECT_EQ(shares({1.0, 1.0, 1.0}), (Counts{342, 341, 341}));
    EXPECT_EQ(shares({0.7, 0.2, 0.1}), (Counts{717, 205, 102}));  // 716.8, 204.8, 102.4
    EXPECT_EQ(shares({3.0, 1.0}), shares({0.75, 0.25}));
}

TEST(Mixture, EveryBlockHoldsTheSharesAndEverySampleOnce) {
    for (const bool shuffle : {true, false}) {
        const Mixture mixture(std::vector{5.0, 2.0, 1.5}, 17, shuffle);
        std::vector<std::set<std::int64_t>> seen(3);
        for (std::int64_t block = 0; block < 5; ++block) {
            for (std::int64_t i = 0; i < Mixture::kBlock; ++i) {
                const auto draw = mixture.draw(block * Mixture::kBlock + i);
                EXPECT_TRUE(
                    seen.at(static_cast<std::size_t>(draw.source)).insert(draw.index).second);
            }
            for (std::int64_t s = 0; s < 3; ++s) {
                const auto& indices = seen[static_cast<std::size_t>(s)];
                const std::int64_t expected = (block + 1) * mixture.in_block(s);
                EXPECT_EQ(std::ssize(indices), expected);
                EXPECT_EQ(*indices.rbegin(), expected - 1) << "without gaps";
            }
        }
    }
}

TEST(Mixture, ShufflingIsAFunctionOfSeedAndBlock) {
    const std::vector weights{1.0, 1.0};
    const Mixture mixture(weights, 3, true), same(weights, 3, true), other(weights, 4, true);
    std::int64_t differs_by_seed = 0, differs_by_block = 0;
    for (std::int64_t i = 0; i < Mixture::kBlock; ++i) {
        EXPECT_EQ(mixture.draw(i), same.draw(i));
        differs_by_seed += mixture.draw(i).source != other.draw(i).source;
        differs_by_block += mixture.draw(i).source != mixture.draw(i + Mixture::kBlock).source;
    }
    // Half of them in the mean, with a deviation of 16.
    for (const std::int64_t differs : {differs_by_seed, differs_by_block}) {
        EXPECT_GT(differs, 512 - 100);
        EXPECT_LT(differs, 512 + 100);
    }
}

TEST(Mixture, WithoutShuffleSourcesAlternateEvenlyAndInTheirOrder) {
    const Mixture mixture(std::vector{3.0, 1.0}, 3, false);
    Counts taken(2);
    for (std::int64_t i = 0; i < 3 * Mixture::kBlock; ++i) {
        const auto draw = mixture.draw(i);
        EXPECT_EQ(draw.index, taken[static_cast<std::size_t>(draw.source)]++);
        EXPECT_LE(std::abs(4 * taken[1] - (i + 1)), 4) << "never more than one off its share";
    }
}

TEST(Mixture, OneSourceAloneIsTheIdentity) {
    for (const double weight : {1.0, 0.01}) {
        const Mixture mixture(std::vector{weight}, 3, true);
        for (const std::int64_t i : {std::int64_t{0}, std::int64_t{5000}, std::int64_t{1} << 60})
            EXPECT_EQ(mixture.draw(i), (Mixture::Draw{0, i}));
    }
}

TEST(Mixture, IndicesBeyondTwoToTheForty) {
    const Mixture mixture(std::vector{1.0, 3.0}, 3, false);
    const std::int64_t block = std::int64_t{1} << 45;
    const auto draw = mixture.draw(block * Mixture::kBlock);
    EXPECT_EQ(draw, (Mixture::Draw{1, block * 768}));
}

TEST(Mixture, WeightsThatMeanNothing) {
    for (const double weight : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
        EXPECT_THROW(shares({1.0, weight}), UsageError) << weight;
    EXPECT_THROW(shares({1.0, 1e-6}), UsageError) << "would never be drawn";
    EXPECT_NO_THROW(shares({1.0, 1e-3}));
    EXPECT_THROW(Mixture(std::vector{1.0}, 1, true).draw(-1), LogicError);
}

}  // namespace
}  // namespace fullshard::data
