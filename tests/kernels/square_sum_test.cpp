#include "kernels/square_sum.h"

#include "base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace fullshard::kernels {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
constexpr float kLargest = std::numeric_limits<float>::max();

double square_sum(std::span<const float> values) {
    SquareSum sum;
    sum.add(values);
    return sum.value();
}

/// Rounds an exact integer to double, nearest and ties to even, by comparing with both neighbours.
double rounded(Wide exact) {
    if (exact < Wide{1} << 53) return static_cast<double>(static_cast<std::uint64_t>(exact));
    double below = static_cast<double>(static_cast<std::uint64_t>(exact >> 64)) * 0x1.0p64;
    below += static_cast<double>(static_cast<std::uint64_t>(exact));
    while (static_cast<Wide>(below) > exact) below = std::nextafter(below, 0.0);
    double above = std::nextafter(below, HUGE_VAL);
    while (static_cast<Wide>(above) <= exact) {
        below = above;
        above = std::nextafter(below, HUGE_VAL);
    }
    const Wide to_below = exact - static_cast<Wide>(below),
               to_above = static_cast<Wide>(above) - exact;
    if (to_below != to_above) return to_below < to_above ? below : above;
    return (std::bit_cast<std::uint64_t>(below) & 1) == 0 ? below : above;
}

std::vector<float> random_values(std::uint64_t key, std::size_t count, int exponents) {
    const RandomStream stream(key);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        const int exponent = static_cast<int>(stream.below(2 * i, exponents)) - exponents / 2;
        values[i] = static_cast<float>(std::ldexp(stream.normal(2 * i + 1), exponent));
    }
    return values;
}

TEST(SquareSum, EmptyAndZero) {
    EXPECT_EQ(square_sum({}), 0.0);
    EXPECT_EQ(square_sum(std::vector<float>(9, -0.0f)), 0.0);
}

TEST(SquareSum, SingleSquaresOverTheWholeRange) {
    for (int exponent = -149; exponent < 128; ++exponent) {
        const auto value = static_cast<float>(std::ldexp(1.0, exponent));
        EXPECT_EQ(square_sum(std::vector{value}), std::ldexp(1.0, 2 * exponent)) << exponent;
        // All mantissa bits that the exponent has room for; double holds the square exactly.
        const float full = std::nextafter(value, 0.0f);
        EXPECT_EQ(square_sum(std::vector{-full}), double{full} * double{full}) << exponent;
    }
    EXPECT_EQ(square_sum(std::vector{kLargest}), double{kLargest} * double{kLargest});
}

// 1^2 + ... + n^2 = n (n + 1) (2n + 1) / 6, in integers; needs 66 bits at the end.
TEST(SquareSum, IntegersInClosedForm) {
    constexpr std::uint64_t kCount = 3'000'000;
    std::vector<float> values(kCount);
    std::iota(values.begin(), values.end(), 1.0f);
    const Wide exact = static_cast<Wide>(kCount) * (kCount + 1) * (2 * kCount + 1) / 6;
    EXPECT_EQ(square_sum(values), rounded(exact));
}

TEST(SquareSum, RandomIntegersAgainst128Bits) {
    for (std::uint64_t key = 0; key < 200; ++key) {
        const RandomStream stream(key);
        std::vector<float> values(1 + stream.below(0, 50));
        Wide exact = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto mantissa = stream.below(2 * i + 1, 1 << 24);
            const auto shift = stream.below(2 * i + 2, 37);  // squares below 2^120
            values[i] = static_cast<float>(std::ldexp(static_cast<double>(mantissa), shift));
            exact += static_cast<Wide>(mantissa) * mantissa << (2 * shift);
        }
        EXPECT_EQ(square_sum(values), rounded(exact)) << "key " << key;
    }
}

// 2^54 + 2 lies between 2^54 and its successor 2^54 + 4: a tie. The smallest square breaks it.
TEST(SquareSum, RoundsTiesToEvenAndSeesEveryLowerBit) {
    const float large = 0x1.0p27f;
    EXPECT_EQ(square_sum(std::vector{large, 1.0f, 1.0f}), 0x1.0p54);
    EXPECT_EQ(square_sum(std::vector{large, 1.0f, 1.0f, kSmallest}), 0x1.0p54 + 4);
    EXPECT_EQ(square_sum(std::vector{large, 2.0f, 1.0f, 1.0f}), 0x1.0p54 + 8);
    EXPECT_EQ(square_sum(std::vector{large, 1.0f, 0.5f}), 0x1.0p54);
}

TEST(SquareSum, ManySubnormalsAndManyHugeValues) {
    EXPECT_EQ(square_sum(std::vector<float>(1'000'000, kSmallest)), std::ldexp(1e6, -298));
    // 2^24 - 1 in units of 2^104, squared and times 10^6: below 2^68, rounded in integers.
    const Wide exact = static_cast<Wide>(0xffffff) * 0xffffff * 1'000'000;
    EXPECT_EQ(square_sum(std::vector<float>(1'000'000, kLargest)), std::ldexp(rounded(exact), 208));
}

TEST(SquareSum, EqualBitsForEveryOrderAndPartition) {
    auto values = random_values(3, 5003, 250);
    values[17] = kSmallest;
    values[18] = 0x1.0p127f;
    SquareSum whole;
    whole.add(values);
    const std::vector expected(whole.bins().begin(), whole.bins().end());
    for (int parts = 1; parts <= 7; ++parts) {
        std::reverse(values.begin(), values.end());
        std::rotate(values.begin(), values.begin() + 100 * parts + 1, values.end());
        SquareSum pieces;
        std::vector<std::int64_t> merged(SquareSum::kBins);
        for (int part = 0; part < parts; ++part) {
            const std::size_t begin = values.size() * part / parts;
            const std::size_t end = values.size() * (part + 1) / parts;
            const auto piece = std::span(values).subspan(begin, end - begin);
            pieces.add(piece);
            SquareSum rank;
            rank.add(piece);
            for (std::size_t i = 0; i < merged.size(); ++i) merged[i] += rank.bins()[i];
        }
        EXPECT_TRUE(std::ranges::equal(pieces.bins(), expected)) << parts;
        // What an all_reduce over ranks leaves behind: bins above 32 bits.
        SquareSum reduced;
        std::ranges::copy(merged, reduced.bins().begin());
        EXPECT_EQ(reduced.value(), whole.value()) << parts;
        reduced.add(std::vector{0.0f});
        EXPECT_TRUE(std::ranges::equal(reduced.bins(), expected)) << parts;
    }
}

// Values that lie close together are added in vectors, others and single ones by their exponents.
TEST(SquareSum, EqualBitsForValuesCloseTogetherAndFarApart) {
    for (const int spread : {1, 10, 20, 22, 24, 40, 80}) {
        for (const int middle : {-149, -126, -60, 0, 80}) {
            auto values = random_values(static_cast<std::uint64_t>(spread), 4099, spread);
            for (float& value : values) value = std::ldexp(value, middle);
            values[100] = 0.0f;
            SquareSum whole;
            whole.add(values);
            SquareSum one_by_one;
            for (const float& value : values) one_by_one.add(std::span(&value, 1));
            EXPECT_TRUE(std::ranges::equal(whole.bins(), one_by_one.bins()))
                << "spread " << spread << " around 2^" << middle;
        }
    }
}

// The bound that bins() states: 2^30 ranks, each with the largest normalised bins.
TEST(SquareSum, MergesTheLargestBinsOf2To30Ranks) {
    SquareSum sum;
    for (std::size_t i = 0; i + 1 < SquareSum::kWeightBins; ++i) {
        sum.bins()[i] = std::int64_t{0xffffffff} << 30;
    }
    // (2^608 - 1) * 2^30 units, rounded up to the power of two.
    EXPECT_EQ(sum.value(), std::ldexp(1.0, 608 + 30 - 298));
    sum.add(std::vector{kSmallest});
    EXPECT_EQ(sum.value(), std::ldexp(1.0, 608 + 30 - 298));
    for (const std::int64_t bin : sum.bins()) EXPECT_GE(bin, 0);
}

// Enough equal values that a table entry would overflow if it were not emptied in time.
TEST(SquareSum, LongRunsOfOneExponent) {
    const float value = std::nextafter(2.0f, 0.0f);
    const std::size_t count = (std::size_t{1} << 19) + 3;
    const Wide exact = static_cast<Wide>(0xffffff) * 0xffffff * count;
    EXPECT_EQ(square_sum(std::vector<float>(count, value)), std::ldexp(rounded(exact), -46));
}

TEST(SquareSum, CountsNonFiniteValues) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    SquareSum sum;
    sum.add(std::vector{1.0f, 2.0f});
    EXPECT_TRUE(sum.finite());
    sum.add(std::vector{kInf, 3.0f, -kInf});
    EXPECT_FALSE(sum.finite());
    EXPECT_EQ(sum.infinities(), 2);
    EXPECT_EQ(sum.value(), HUGE_VAL);
    sum.add(std::vector{1.0f, 1.0f, 1.0f, 1.0f, kNan});
    EXPECT_EQ(sum.infinities(), 2);
    EXPECT_EQ(sum.nans(), 1);
    EXPECT_TRUE(std::isnan(sum.value()));
    // The finite part is not lost.
    for (std::size_t i = SquareSum::kWeightBins; i < SquareSum::kBins; ++i) sum.bins()[i] = 0;
    EXPECT_EQ(sum.value(), 1.0 + 4.0 + 9.0 + 4.0);
}

}  // namespace
}  // namespace fullshard::kernels
