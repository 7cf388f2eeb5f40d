#include "data/sampler.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

namespace fullshard::data {
namespace {

std::vector<std::int64_t> epoch_of(const Sampler& sampler, std::int64_t epoch) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(sampler.samples()));
    for (std::int64_t i = 0; i < sampler.samples(); ++i)
        order[static_cast<std::size_t>(i)] = sampler.sample(epoch * sampler.samples() + i);
    return order;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
    std::ranges::sort(values);
    return values;
}

std::vector<std::int64_t> identity(std::int64_t n) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    return order;
}

TEST(Sampler, EveryEpochHoldsEverySampleExactlyOnce) {
    for (std::int64_t n = 1; n <= 200; ++n) {
        const Sampler sampler(17, n, true);
        for (std::int64_t epoch = 0; epoch < 4; ++epoch)
            ASSERT_EQ(sorted(epoch_of(sampler, epoch)), identity(n))
                << "n " << n << " epoch " << epoch;
    }
    for (const std::int64_t n : {4095, 4096, 4097, 100'003}) {
        const Sampler sampler(17, n, true);
        EXPECT_EQ(sorted(epoch_of(sampler, 3)), identity(n)) << n;
    }
}

TEST(Sampler, EpochsAndSeedsHaveOrdersOfTheirOwn) {
    const Sampler sampler(17, 100, true);
    EXPECT_NE(epoch_of(sampler, 0), identity(100));
    EXPECT_NE(epoch_of(sampler, 0), epoch_of(sampler, 1));
    EXPECT_NE(epoch_of(sampler, 0), epoch_of(Sampler(18, 100, true), 0));
    EXPECT_EQ(epoch_of(sampler, 5), epoch_of(Sampler(17, 100, true), 5));
}

TEST(Sampler, WithoutShuffleEveryEpochIsInOrder) {
    const Sampler sampler(17, 7, false);
    EXPECT_EQ(epoch_of(sampler, 0), identity(7));
    EXPECT_EQ(epoch_of(sampler, 9), identity(7));
}

// Every sample must be equally likely at every place: over many epochs the hits of each (place,
// sample) pair are binomial. The bound is five standard deviations.
TEST(Sampler, EverySampleIsEquallyLikelyAtEveryPlace) {
    constexpr std::int64_t kEpochs = 8000;
    for (const std::int64_t n : {2, 3, 4, 5, 16, 17}) {
        const Sampler sampler(5, n, true);
        std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> hits;
        for (std::int64_t index = 0; index < kEpochs * n; ++index)
            ++hits[{index % n, sampler.sample(index)}];
        const double p = 1.0 / static_cast<double>(n);
        const double deviation = std::sqrt(kEpochs * p * (1.0 - p));
        EXPECT_EQ(std::ssize(hits), n * n);
        for (const auto& [pair, count] : hits)
            EXPECT_NEAR(static_cast<double>(count), kEpochs * p, 5.0 * deviation)
                << "n " << n << " place " << pair.first << " sample " << pair.second;
    }
}

// Neighbouring indices must not map to neighbouring samples more often than chance: 2 / n.
TEST(Sampler, NeighboursAreSeparated) {
    constexpr std::int64_t kSamples = 10'000;
    const auto order = epoch_of(Sampler(1, kSamples, true), 0);
    std::int64_t neighbours = 0;
    for (std::size_t i = 1; i < order.size(); ++i)
        if (std::abs(order[i] - order[i - 1]) == 1) ++neighbours;
    EXPECT_LE(neighbours, 12);  // mean 2, Poisson
}

TEST(Sampler, HugeIndicesAndHugeSampleCounts) {
    const std::int64_t far = std::int64_t{1} << 40;
    const Sampler small(3, 7, true);
    const auto epoch = far / 7 + 1;
    EXPECT_EQ(sorted(epoch_of(small, epoch)), identity(7));

    const Sampler huge(3, far + 5, true);
    std::vector<std::int64_t> seen;
    for (std::int64_t i = 0; i < 1000; ++i) {
        seen.push_back(huge.sample(far + 5 + i));
        EXPECT_GE(seen.back(), 0);
        EXPECT_LT(seen.back(), far + 5);
    }
    std::ranges::sort(seen);
    EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
    EXPECT_GT(seen.back(), far / 2);

    const Sampler largest(3, std::int64_t{1} << 62, true);
    EXPECT_NE(largest.sample(0), largest.sample(1));
    EXPECT_EQ(Sampler(3, far, false).sample(far + 2), 2);
}

TEST(Sampler, WrongArgumentsAreLogicErrors) {
    EXPECT_THROW(Sampler(1, 0, true), LogicError);
    EXPECT_THROW(Sampler(1, (std::int64_t{1} << 62) + 1, true), LogicError);
    EXPECT_THROW(Sampler(1, 5, true).sample(-1), LogicError);
}

TEST(Sampler, PlaceIsTheInverse) {
    for (const bool shuffle : {true, false}) {
        for (const std::int64_t n : {1, 2, 3, 5, 16, 17, 1000}) {
            const Sampler sampler(12, n, shuffle);
            for (std::int64_t index = 0; index < 3 * n; ++index)
                ASSERT_EQ(sampler.place(index / n, sampler.sample(index)), index % n) << n;
        }
    }
    EXPECT_THROW(Sampler(1, 5, true).place(0, 5), LogicError);
    EXPECT_THROW(Sampler(1, 5, true).place(-1, 0), LogicError);
}

}  // namespace
}  // namespace fullshard::data
