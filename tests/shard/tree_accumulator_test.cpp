#include "shard/tree_accumulator.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fullshard::shard {
namespace {

float contribution(std::int64_t g) {
    return std::ldexp(1.0F + 0.1F * static_cast<float>(g % 7), static_cast<int>(g * 5 % 23));
}

float tree(std::int64_t first, std::int64_t count) {
    if (count == 1) return contribution(first);
    std::int64_t left = 1;
    while (left * 2 < count) left *= 2;
    return tree(first, left) + tree(first + left, count - left);
}

TEST(TreeAccumulator, SumsAnyNumberOfContributionsInTreeOrder) {
    for (std::int64_t count = 1; count <= 40; ++count) {
        const std::int64_t levels = TreeAccumulator::levels_for(count, SumOrder::kTree);
        std::vector<float> memory(static_cast<std::size_t>(2 * levels), NAN);
        TreeAccumulator accumulator(memory, levels, SumOrder::kTree);
        for (int step = 0; step < 2; ++step) {
            for (std::int64_t g = 0; g < count; ++g) {
                accumulator.target()[0] = contribution(g);
                accumulator.target()[1] = 1.0F;
                accumulator.commit();
            }
            accumulator.finish();
            EXPECT_EQ(accumulator.result()[0], tree(0, count)) << count;
            EXPECT_EQ(accumulator.result()[1], static_cast<float>(count));
            accumulator.reset();
        }
    }
}

TEST(TreeAccumulator, AddsAsTheyComeInFastOrder) {
    for (std::int64_t count = 1; count <= 9; ++count) {
        const std::int64_t levels = TreeAccumulator::levels_for(count, SumOrder::kFast);
        std::vector<float> memory(static_cast<std::size_t>(levels), NAN);
        TreeAccumulator accumulator(memory, levels, SumOrder::kFast);
        float expected = contribution(0);
        for (std::int64_t g = 0; g < count; ++g) {
            if (g > 0) expected += contribution(g);
            accumulator.target()[0] = contribution(g);
            accumulator.commit();
        }
        accumulator.finish();
        EXPECT_EQ(accumulator.result()[0], expected) << count;
    }
}

TEST(TreeAccumulator, NeedsLogarithmicallyManyBuffers) {
    const auto levels = [](std::int64_t count) {
        return TreeAccumulator::levels_for(count, SumOrder::kTree);
    };
    EXPECT_EQ(levels(1), 1);
    EXPECT_EQ(levels(4), 3);
    EXPECT_EQ(levels(1023), 10);
    EXPECT_EQ(TreeAccumulator::levels_for(1023, SumOrder::kFast), 2);
}

}  // namespace
}  // namespace fullshard::shard
