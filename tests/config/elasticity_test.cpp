#include "config/elasticity.h"

#include "base/error.h"
#include "config/render.h"
#include "config/world_sizes.h"
#include "support.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fullshard::config {
namespace {

using Sizes = std::vector<std::int64_t>;

Elasticity elasticity(Sizes micro_batches, std::int64_t max_batch) {
    return {.enabled = true,
            .max_train_batch_size = max_batch,
            .micro_batch_sizes = std::move(micro_batches)};
}

Elasticity with_limits(Elasticity e, std::int64_t min_ranks, std::int64_t max_ranks) {
    e.min_ranks = min_ranks;
    e.max_ranks = max_ranks;
    return e;
}

Elasticity smaller_preferred(Elasticity e) {
    e.prefer_larger_batch = false;
    return e;
}

Elasticity on_nodes(Elasticity e, std::int64_t ranks_per_node) {
    e.ranks_per_node = ranks_per_node;
    return e;
}

/// What DeepSpeed's own code, executed, gave for the same input.
struct Golden {
    std::string name;
    Elasticity input;
    std::int64_t global_batch;
    Sizes world_sizes;
};

class ElasticGolden : public testing::TestWithParam<Golden> {};

TEST_P(ElasticGolden, BatchAndWorldSizes) {
    const auto [global_batch, world_sizes] = elastic_batch(GetParam().input);
    EXPECT_EQ(global_batch, GetParam().global_batch);
    EXPECT_EQ(world_sizes, GetParam().world_sizes);
}

// What makes a world size valid, whatever the algorithm.
TEST_P(ElasticGolden, EveryWorldSizeSharesTheBatchWithinTheLimits) {
    const Elasticity& input = GetParam().input;
    for (const std::int64_t ranks : elastic_batch(input).world_sizes) {
        SCOPED_TRACE(ranks);
        const Batch batch = resolve_batch(input, ranks);
        EXPECT_EQ(batch.micro_batch * batch.grad_accum_steps * ranks, batch.global_batch);
        EXPECT_EQ(batch.global_batch, GetParam().global_batch);
        EXPECT_LE(batch.global_batch, input.max_train_batch_size);
        EXPECT_EQ(std::ranges::count(input.micro_batch_sizes, batch.micro_batch), 1);
        EXPECT_EQ(ranks % input.ranks_per_node, 0);
        EXPECT_GE(ranks, input.min_ranks);
        EXPECT_LE(ranks, input.max_ranks);
    }
}

const Sizes kManySizes{1,  2,  3,  4,  5,  6,  7,  8,  10,  12,  14,  15,  20,  21,  24,  28,
                       30, 35, 40, 42, 56, 60, 70, 84, 105, 120, 140, 168, 210, 280, 420, 840};

INSTANTIATE_TEST_SUITE_P(
    DeepSpeed, ElasticGolden,
    testing::Values(
        Golden{"documentation",
               with_limits(elasticity({8, 12, 16, 17}, 10000), 32, 1500),
               9792,
               {32,  34,  36,  48,  51,  64,  68,  72,  96,  102, 136, 144,
                153, 192, 204, 272, 288, 306, 408, 576, 612, 816, 1224}},
        Golden{"many", elasticity({2, 4, 6}, 2000), 1680, kManySizes},
        // https://github.com/deepspeedai/DeepSpeed/pull/8237: was 120, above the maximum.
        Golden{"below_the_maximum", elasticity({8, 10, 12}, 100), 96, {1, 2, 3, 4, 6, 8, 12}},
        Golden{"larger", elasticity({2, 4}, 16), 16, {1, 2, 4, 8}},
        Golden{"smaller", smaller_preferred(elasticity({2, 4}, 16)), 12, {1, 2, 3, 6}},
        Golden{"odd", elasticity({3, 5}, 64), 60, {1, 2, 3, 4, 5, 6, 10, 12, 20}},
        Golden{"consecutive", elasticity({1, 2, 3, 4}, 48), 48, {1, 2, 3, 4, 6, 8, 12, 16, 24, 48}},
        Golden{"one_rank", elasticity({4}, 4), 4, {1}}, Golden{"one", elasticity({1}, 1), 1, {1}},
        Golden{"few", elasticity({2, 4, 6}, 24), 24, {1, 2, 3, 4, 6, 12}},
        Golden{"nodes",
               on_nodes(elasticity({2, 4, 6}, 2000), 8),
               1920,
               {8, 16, 24, 32, 40, 48, 64, 80, 96, 120, 160, 192, 240, 320, 480, 960}}),
    [](const auto& golden) { return golden.param.name; });

TEST(Elasticity, LargestMicroBatchThatFitsIsTaken) {
    const auto micro = [](const Elasticity& e, std::int64_t ranks) {
        return resolve_batch(e, ranks).micro_batch;
    };
    const Elasticity documentation = with_limits(elasticity({8, 12, 16, 17}, 10000), 32, 1500);
    EXPECT_EQ(micro(documentation, 64), 17);
    EXPECT_EQ(micro(documentation, 36), 17);
    const Elasticity few = elasticity({2, 4, 6}, 24);
    EXPECT_EQ(micro(few, 1), 6);
    EXPECT_EQ(micro(few, 2), 6);
    EXPECT_EQ(micro(few, 3), 4);
    EXPECT_EQ(micro(few, 4), 6);
    EXPECT_EQ(micro(few, 6), 4);
    EXPECT_EQ(micro(few, 12), 2);
    const Elasticity nodes = on_nodes(elasticity({2, 4, 6}, 2000), 8);
    EXPECT_EQ(micro(nodes, 8), 6);
    EXPECT_EQ(micro(nodes, 24), 4);
}

/// The message of the UsageError, or empty.
std::string batch_error(const Elasticity& e, std::int64_t ranks) {
    try {
        resolve_batch(e, ranks);
    } catch (const UsageError& error) {
        return error.what();
    }
    return {};
}

TEST(Elasticity, OtherWorldSizesAreRefusedWithTheValidOnes) {
    for (const std::int64_t ranks : {8, 24}) {
        const std::string error = batch_error(elasticity({2, 4, 6}, 24), ranks);
        EXPECT_TRUE(contains(error, "global batch of 24 sequences")) << error;
        EXPECT_TRUE(contains(error, "run on 1, 2, 3, 4, 6 or 12 ranks")) << error;
        EXPECT_TRUE(contains(error, "elasticity.max_train_batch_size")) << error;
    }
    const std::string of_many =
        batch_error(with_limits(elasticity({8, 12, 16, 17}, 10000), 32, 1500), 128);
    EXPECT_TRUE(contains(of_many, "run on ..., 36, 48, 51, 64, 68, 72, 96, 102, 136, 144,"))
        << of_many;
    EXPECT_TRUE(contains(of_many, "(23 sizes in all; --print-world-sizes lists them)")) << of_many;
    EXPECT_TRUE(contains(batch_error(on_nodes(elasticity({2, 4, 6}, 2000), 8), 4), "run on 8, "));
}

// DeepSpeed divides by the ranks of a node and rounds down, which lets 8 ranks pass a minimum of
// 12. Here limits hold.
TEST(Elasticity, LimitsHoldOnNodes) {
    const auto sizes = [](std::int64_t min_ranks, std::int64_t max_ranks) {
        return elastic_batch(
                   on_nodes(with_limits(elasticity({2, 4, 6}, 2000), min_ranks, max_ranks), 8))
            .world_sizes;
    };
    EXPECT_EQ(sizes(12, 100).front(), 16);
    EXPECT_EQ(sizes(1, 47).back(), 40);
    EXPECT_EQ(sizes(17, 23), Sizes{});
}

TEST(Elasticity, CoprimeMicroBatchesDoNotOverflow) {
    const Sizes primes{999'983, 999'979, 999'961, 999'959};
    const auto [global_batch, world_sizes] = elastic_batch(elasticity(primes, 1'000'000'000'000));
    EXPECT_LE(global_batch, 1'000'000'000'000);
    EXPECT_GT(world_sizes.size(), 100u);
}

TEST(ElasticDeck, SectionTakesThePlaceOfTheBatchKeys) {
    const Deck deck = parsed(
        "[elasticity]\nenabled = on\nmax_train_batch_size = 24\nmicro_batch_sizes = 2, 4,6\n");
    EXPECT_EQ(deck.elasticity.micro_batch_sizes, (Sizes{2, 4, 6}));
    EXPECT_EQ(resolve_batch(deck, 3), (Batch{4, 2, 24}));
    EXPECT_EQ(*valid_world_sizes(deck), (Sizes{1, 2, 3, 4, 6, 12}));
}

TEST(ElasticDeck, BatchKeysBesideItAreNamed) {
    const std::string error = error_of(
        "[elasticity]\nenabled = on\nmax_train_batch_size = 24\nmicro_batch_sizes = 2\n"
        "[train]\nmicro_batch = 2\nglobal_batch = 24\n");
    EXPECT_TRUE(contains(error,
                         "elasticity.enabled = on (t.ini:2), train.micro_batch = 2 (t.ini:6), "
                         "train.global_batch = 24 (t.ini:7): [elasticity] derives the batch sizes"))
        << error;
    EXPECT_TRUE(contains(error, "one mistake")) << error;
}

TEST(ElasticDeck, MistakesNameKeyValueAndRemedy) {
    const auto error = [](const std::string& keys) {
        return error_of("[elasticity]\nenabled = on\n" + keys);
    };
    const std::string both = error("");
    EXPECT_TRUE(contains(both, "2 mistakes")) << both;
    EXPECT_TRUE(contains(both, "set elasticity.max_train_batch_size")) << both;
    EXPECT_TRUE(contains(both, "set elasticity.micro_batch_sizes")) << both;

    const std::string negative = error("max_train_batch_size = 9\nmicro_batch_sizes = 2, -2\n");
    EXPECT_TRUE(contains(negative, "elasticity.micro_batch_sizes = 2, -2: -2 is out of range"))
        << negative;
    const std::string too_large = error("max_train_batch_size = 4\nmicro_batch_sizes = 8\n");
    EXPECT_TRUE(contains(too_large, "elasticity.micro_batch_sizes = 8")) << too_large;
    EXPECT_TRUE(contains(too_large, "elasticity.max_train_batch_size = 8 or more")) << too_large;
    const std::string of_node =
        error("max_train_batch_size = 15\nmicro_batch_sizes = 2\nranks_per_node = 8\n");
    EXPECT_TRUE(contains(of_node, "elasticity.max_train_batch_size = 16 or more")) << of_node;

    const std::string limits =
        error("max_train_batch_size = 8\nmicro_batch_sizes = 2\nmin_ranks = 4\nmax_ranks = 3\n");
    EXPECT_TRUE(contains(limits, "set elasticity.max_ranks = 4 or more")) << limits;
    const std::string none =
        error("max_train_batch_size = 8\nmicro_batch_sizes = 2\nmin_ranks = 5\nmax_ranks = 9\n");
    EXPECT_TRUE(contains(none, "widen min_ranks and max_ranks to include some of 1, 2 or 4 ranks"))
        << none;
}

// A deck is written back with every key, so the list must read as it is shown.
TEST(ElasticDeck, ListOfNumbersReadsBack) {
    const std::string text =
        effective_deck(parsed("[elasticity]\nmicro_batch_sizes = '8,12 , 16'\n"));
    EXPECT_TRUE(contains(text, "micro_batch_sizes = 8, 12, 16")) << text;
    EXPECT_EQ(parsed(text).elasticity.micro_batch_sizes, (Sizes{8, 12, 16}));
}

}  // namespace
}  // namespace fullshard::config
