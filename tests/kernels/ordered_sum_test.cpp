#include "kernels/ordered_sum.h"

#include "base/error.h"
#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace fullshard::kernels {
namespace {

// Values of very different magnitude: nearly every change of the order changes bits.
std::vector<float> random_values(std::uint64_t key, std::size_t count) {
    const RandomStream stream(key);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(std::ldexp(stream.normal(i), static_cast<int>(i % 13) - 6));
    }
    return values;
}

// The definition, one element at a time and split by search instead of bit tricks.
float reference_tree(const std::vector<std::vector<float>>& sources, std::size_t first,
                     std::size_t count, std::size_t element) {
    if (count == 1) return sources[first][element];
    std::size_t split = 1;
    while (split * 2 < count) split *= 2;
    const float left = reference_tree(sources, first, split, element);
    const float right = reference_tree(sources, first + split, count - split, element);
    return left + right;
}

std::vector<float> reference_tree(const std::vector<std::vector<float>>& sources) {
    std::vector<float> sum(sources[0].size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] = reference_tree(sources, 0, sources.size(), i);
    }
    return sum;
}

std::vector<std::vector<float>> random_sources(std::size_t count, std::size_t elements) {
    std::vector<std::vector<float>> sources;
    for (std::size_t k = 0; k < count; ++k) sources.push_back(random_values(100 + k, elements));
    return sources;
}

std::vector<const float*> pointers(const std::vector<std::vector<float>>& sources) {
    std::vector<const float*> result;
    for (const auto& source : sources) result.push_back(source.data());
    return result;
}

bool equal_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

constexpr std::size_t kSizes[] = {0, 1, 3, 7, 8, 17, 511, 512, 513, 1031, 1543};

TEST(TreeSum, EqualsTheDefinitionForAllCountsAndSizes) {
    for (std::size_t count = 1; count <= 17; ++count) {
        for (const std::size_t elements : kSizes) {
            const auto sources = random_sources(count, elements);
            // One more element behind the end shows a write too far.
            std::vector<float> out(elements + 1, -77.0f);
            tree_sum(std::span(out).first(elements), pointers(sources));
            EXPECT_TRUE(equal_bits(std::span(out).first(elements), reference_tree(sources)))
                << count << " sources of " << elements << " elements";
            EXPECT_EQ(out[elements], -77.0f);
        }
    }
}

TEST(TreeSum, ManySources) {
    for (const std::size_t count : {31, 64, 100}) {
        const auto sources = random_sources(count, 600);
        std::vector<float> out(600);
        tree_sum(out, pointers(sources));
        EXPECT_TRUE(equal_bits(out, reference_tree(sources))) << count;
    }
}

TEST(TreeSum, OutputMayBeAnyOfTheSources) {
    for (std::size_t count = 1; count <= 17; ++count) {
        for (std::size_t target = 0; target < count; ++target) {
            auto sources = random_sources(count, 1031);
            const auto expected = reference_tree(sources);
            tree_sum(sources[target], pointers(sources));
            EXPECT_TRUE(equal_bits(sources[target], expected))
                << "source " << target << " of " << count;
        }
    }
}

TEST(TreeSum, UnalignedMemory) {
    const auto a = random_values(1, 1000), b = random_values(2, 1000);
    std::vector<float> whole(1000), cut(1000);
    tree_sum(whole, std::vector<const float*>{a.data(), b.data()});
    std::size_t begin = 0;
    for (const std::size_t length : {1, 2, 5, 13, 400, 3, 576}) {
        const std::vector<const float*> sources{a.data() + begin, b.data() + begin};
        tree_sum(std::span(cut).subspan(begin, length), sources);
        begin += length;
    }
    ASSERT_EQ(begin, 1000u);
    EXPECT_TRUE(equal_bits(whole, cut));
}

// Why the order exists: aligned power-of-two groups may be summed first, elsewhere.
TEST(TreeSum, AlignedGroupsAreSubtrees) {
    const auto sources = random_sources(16, 333);
    const auto all = pointers(sources);
    const auto expected = reference_tree(sources);
    for (const std::size_t group : {2, 4, 8}) {
        std::vector<std::vector<float>> partial;
        for (std::size_t k = 0; k < 16; k += group) {
            partial.emplace_back(333);
            tree_sum(partial.back(), std::span(all).subspan(k, group));
        }
        std::vector<float> out(333);
        tree_sum(out, pointers(partial));
        EXPECT_TRUE(equal_bits(out, expected)) << "groups of " << group;
    }
}

// The comparisons above would pass for any order if the values did not depend on it.
TEST(TreeSum, ValuesTellOrdersApart) {
    const auto sources = random_sources(8, 1000);
    std::vector<float> sequential(1000);
    for (const auto& source : sources) {
        for (std::size_t i = 0; i < 1000; ++i) sequential[i] += source[i];
    }
    EXPECT_FALSE(equal_bits(sequential, reference_tree(sources)));
}

TEST(TreeSum, RefusesNoSources) {
    std::vector<float> out(3);
    EXPECT_THROW(tree_sum(out, {}), LogicError);
}

TEST(AddInto, AddsElementwiseAtAnyOffset) {
    for (std::size_t offset = 0; offset < 9; ++offset) {
        auto accumulator = random_values(5, 1031);
        auto addend = random_values(6, 1031);
        auto expected = accumulator;
        for (std::size_t i = offset; i < expected.size(); ++i) expected[i] += addend[i];
        add_into(std::span(accumulator).subspan(offset), std::span(addend).subspan(offset));
        EXPECT_TRUE(equal_bits(accumulator, expected)) << offset;
    }
}

TEST(AddInto, SameMemoryDoublesAndUnequalSizesAreRefused) {
    std::vector<float> values(37);
    std::iota(values.begin(), values.end(), 1.0f);
    add_into(values, std::span(values));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], 2.0f * (i + 1));
    EXPECT_THROW(add_into(values, std::span(values).first(3)), LogicError);
}

}  // namespace
}  // namespace fullshard::kernels
