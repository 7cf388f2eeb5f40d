#include "config/world_sizes.h"

#include "config/batch.h"
#include "support.h"

#include <gtest/gtest.h>

namespace fullshard::config {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(WorldSizes, AreTheDivisorsOfTheMicroBatchesOfAStep) {
    EXPECT_EQ(valid_world_sizes(24, 2), (Sizes{1, 2, 3, 4, 6, 12}));
    EXPECT_EQ(valid_world_sizes(24, 24), (Sizes{1}));
    EXPECT_EQ(valid_world_sizes(18, 2), (Sizes{1, 3, 9}));
    EXPECT_EQ(valid_world_sizes(24, 5), Sizes{});
    EXPECT_EQ(divisors(1'000'000'000'000).size(), 169u);  // 2^12 * 5^12
}

/// Sizes up to 64 at which resolve_batch() finds no mistake.
Sizes tried(const Deck& deck) {
    Sizes sizes;
    for (std::int64_t ranks = 1; ranks <= 64; ++ranks) {
        try {
            static_cast<void>(resolve_batch(deck, ranks));
            sizes.push_back(ranks);
        } catch (const UsageError&) {
            continue;
        }
    }
    return sizes;
}

TEST(WorldSizes, OfADeckAreThoseThatResolve) {
    for (const std::string keys :
         {"global_batch = 24", "global_batch = 24\nmicro_batch = 2",
          "global_batch = 24\ngrad_accum_steps = 3",
          "global_batch = 24\nmicro_batch = 2\ngrad_accum_steps = 3", "global_batch = 30"}) {
        SCOPED_TRACE(keys);
        const Deck deck = parsed("[train]\n" + keys + "\n");
        EXPECT_EQ(valid_world_sizes(deck), tried(deck));
    }
    EXPECT_EQ(valid_world_sizes(parsed("[train]\nmicro_batch = 2\n")), std::nullopt);
}

TEST(WorldSizes, LongListsAreCutAroundTheNumberAskedFor) {
    EXPECT_EQ(world_sizes_text(Sizes{1}, 3), "1 rank");
    EXPECT_EQ(world_sizes_text(Sizes{6}, 3), "6 ranks");
    EXPECT_EQ(world_sizes_text(Sizes{1, 2, 4}, 3), "1, 2 or 4 ranks");
    const Sizes many = divisors(720720);
    EXPECT_TRUE(world_sizes_text(many, 1).starts_with("1, 2, 3, 4, 5,"));
    EXPECT_TRUE(contains(world_sizes_text(many, 720720), "360360, 720720 ranks (240 sizes"));
    const std::string around = world_sizes_text(many, 1000);
    EXPECT_TRUE(around.starts_with("..., ")) << around;
    EXPECT_TRUE(contains(around, ", 990, 1001, ")) << around;
    EXPECT_TRUE(contains(around, ", ... ranks (240 sizes in all")) << around;
    EXPECT_LT(around.size(), 160u);
}

TEST(WorldSizes, TableHasTheBatchSizesOfEach) {
    const std::string text =
        world_sizes_table(parsed("[train]\nmicro_batch = 2\nglobal_batch = 12\n"));
    EXPECT_EQ(text,
              "     ranks  micro_batch  grad_accum_steps  global_batch\n"
              "         1            2                 6            12\n"
              "         2            2                 3            12\n"
              "         3            2                 2            12\n"
              "         6            2                 1            12\n");
}

TEST(WorldSizes, WithoutAGlobalBatchAnyNumberWillDo) {
    EXPECT_EQ(world_sizes_table(parsed("[train]\nmicro_batch = 2\ngrad_accum_steps = 3\n")),
              "any number of ranks: train.global_batch is not set, so a step has 2 (micro_batch) * "
              "3 (grad_accum_steps) * ranks sequences\n");
}

TEST(WorldSizes, AreInTheErrorOfABatchThatCannotBeShared) {
    const auto error = [](const std::string& keys, std::int64_t ranks) -> std::string {
        try {
            resolve_batch(parsed("[train]\n" + keys), ranks);
        } catch (const UsageError& mistake) {
            return mistake.what();
        }
        return {};
    };
    const std::string derived = error("micro_batch = 2\nglobal_batch = 24\n", 5);
    EXPECT_TRUE(contains(derived, "run on 1, 2, 3, 4, 6 or 12 ranks, set train.global_batch to 20"))
        << derived;
    const std::string given =
        error("micro_batch = 2\ngrad_accum_steps = 3\nglobal_batch = 24\n", 5);
    EXPECT_TRUE(contains(given, "change the number of ranks to 4")) << given;
}

}  // namespace
}  // namespace fullshard::config
