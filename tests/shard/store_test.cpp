// The promise of equal bits for everything that only moves state around: strategies, group sizes,
// stores, nodes, wrapping, prefetching, slots.
#include "base/error.h"
#include "shard/toy_training.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace fullshard::shard {
namespace {

using fullshard::testing::on_first_ranks;
using fullshard::testing::same_bits;
using fullshard::testing::toy_model;
using fullshard::testing::ToySharding;
using fullshard::testing::ToyTraining;
using fullshard::testing::train_toy;
using fullshard::testing::train_toy_serially;
using fullshard::testing::world;

constexpr std::int64_t kSteps = 4;

/// Ways to cut the ranks into nodes, and what a store makes of them.
std::vector<ToySharding> on_all_nodes(const ToySharding& sharding, int ranks) {
    std::vector<ToySharding> list;
    const auto add = [&](int ranks_per_node, bool node_shared, StorePreference store) {
        ToySharding each = sharding;
        each.ranks_per_node = ranks_per_node;
        each.node_shared = node_shared;
        each.store = store;
        list.push_back(each);
    };
    add(0, true, StorePreference::kAuto);
    add(0, true, StorePreference::kSlotted);
    add(0, false, StorePreference::kSlotted);
    if (ranks % 2 == 0) add(ranks / 2, true, StorePreference::kAuto);
    return list;
}

/// Every strategy with every group size that divides the ranks.
std::vector<ToySharding> strategies_and_groups(int ranks) {
    std::vector<ToySharding> list;
    for (const Strategy& strategy : strategies()) {
        list.push_back({.strategy = std::string(strategy.name)});
        if (strategy.keeps_everything()) continue;
        for (int group = 1; group <= ranks; ++group) {
            if (ranks % group == 0)
                list.push_back({.strategy = std::string(strategy.name), .group_size = group});
        }
    }
    return list;
}

/// Every strategy with its own group size, and full_shard in two groups where there can be: what
/// tests of other choices multiply with.
std::vector<ToySharding> strategies_once(int ranks) {
    std::vector<ToySharding> list;
    for (const Strategy& strategy : strategies()) {
        list.push_back({.strategy = std::string(strategy.name)});
    }
    if (ranks % 2 == 0) list.push_back({.group_size = ranks / 2});
    return list;
}

TEST(Stores, StrategiesGroupsAndNodesGiveTheBitsOfPlainLoops) {
    const int ranks = world().size();
    for (const std::int64_t micro_batches : {1, 2}) {
        const auto expected = train_toy_serially(kSteps, ranks, micro_batches);
        for (const ToySharding& strategy : strategies_and_groups(ranks)) {
            for (const ToySharding& sharding : on_all_nodes(strategy, ranks)) {
                EXPECT_TRUE(
                    same_bits(train_toy(world(), sharding, kSteps, micro_batches), expected))
                    << sharding.describe() << ", " << micro_batches << " micro-batches";
            }
        }
    }
}

TEST(Stores, WrapPoliciesPrefetchesAndSlotsChangeNothing) {
    using Backward = Prefetch::Backward;
    const std::vector<Wrap> wraps{
        {WrapPolicy::kModel, 0}, {WrapPolicy::kBlock, 0}, {WrapPolicy::kSize, 500}};
    const std::vector<Prefetch> prefetches{{false, Backward::kOff, 1},
                                           {true, Backward::kOff, 1},
                                           {false, Backward::kPost, 1},
                                           {true, Backward::kPre, 2}};
    const auto expected = train_toy_serially(kSteps, world().size(), 2);
    for (const Wrap& wrap : wraps) {
        for (const Prefetch& prefetch : prefetches) {
            for (const bool reshard : {true, false}) {
                const ToySharding base{.wrap = wrap,
                                       .prefetch = prefetch,
                                       .slots = prefetch.ahead + 1,
                                       .reshard_after_forward = reshard};
                for (const ToySharding& sharding : on_all_nodes(base, world().size())) {
                    EXPECT_TRUE(same_bits(train_toy(world(), sharding, kSteps, 2), expected))
                        << sharding.describe();
                }
            }
        }
    }
}

TEST(Stores, OneSlotIsEnoughWithoutPrefetch) {
    const auto expected = train_toy_serially(kSteps, world().size(), 2);
    for (ToySharding& sharding : on_all_nodes(
             {.prefetch = {false, Prefetch::Backward::kOff}, .slots = 1}, world().size())) {
        EXPECT_TRUE(same_bits(train_toy(world(), sharding, kSteps, 2), expected))
            << sharding.describe();
    }
}

// ZeRO++'s hpZ, FSDP2's reshard_after_forward = k.
TEST(Stores, GatheringAgainInASmallerGroupChangesNothing) {
    const int ranks = world().size();
    const auto expected = train_toy_serially(kSteps, ranks, 2);
    for (int smaller = 2; smaller < ranks; ++smaller) {
        if (ranks % smaller != 0) continue;
        for (const ToySharding& sharding : on_all_nodes({.regather_ranks = smaller}, ranks)) {
            EXPECT_TRUE(same_bits(train_toy(world(), sharding, kSteps, 2), expected))
                << sharding.describe();
        }
    }
}

TEST(Stores, DifferentWorldSizesGiveEqualBitsForTheSameGlobalBatch) {
    if (world().size() != 4) GTEST_SKIP() << "compares 1, 2 and 4 ranks: needs 4";
    for (const DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        const auto expected = train_toy_serially(kSteps, 1, 4, compute);
        for (const int ranks : {1, 2, 4}) {
            on_first_ranks(ranks, [&](const comm::Group& group) {
                for (const char* strategy : {"no_shard", "zero1", "shard_grad_op", "full_shard"}) {
                    const ToySharding sharding{.strategy = strategy, .compute = compute};
                    EXPECT_TRUE(same_bits(train_toy(group, sharding, kSteps, 4 / ranks), expected))
                        << sharding.describe() << " on " << ranks;
                }
            });
        }
    }
}

TEST(Stores, HalfWidthComputeAndReduceTypesGiveTheBitsOfPlainLoops) {
    const int ranks = world().size();
    using enum DType;
    for (const auto& [compute, reduce] : {std::pair{kBFloat16, kFloat32},
                                          {kFloat16, kFloat32},
                                          {kBFloat16, kBFloat16},
                                          {kFloat32, kBFloat16},
                                          {kFloat16, kBFloat16}}) {
        const auto expected = train_toy_serially(kSteps, ranks, 2, compute, reduce);
        for (ToySharding strategy : strategies_once(ranks)) {
            strategy.compute = compute;
            strategy.reduce = reduce;
            for (const ToySharding& sharding : on_all_nodes(strategy, ranks)) {
                EXPECT_TRUE(same_bits(train_toy(world(), sharding, kSteps, 2), expected))
                    << sharding.describe();
            }
        }
    }
}

void expect_close(const std::vector<float>& actual, const std::vector<float>& expected,
                  const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_NEAR(actual[i], expected[i], 1e-5 * (1.0 + std::abs(expected[i]))) << what;
    }
}

// The second row of the promise: other orders of summation, equal to rounding.
TEST(Stores, FastOrderAndUnshardedAccumulationAreCloseToPlainLoops) {
    const int ranks = world().size();
    for (const std::int64_t micro_batches : {1, 3}) {
        const auto expected = train_toy_serially(kSteps, ranks, micro_batches);
        for (const Accumulation accumulation : {Accumulation::kSharded, Accumulation::kUnsharded}) {
            for (ToySharding strategy : strategies_once(ranks)) {
                strategy.order = SumOrder::kFast;
                strategy.accumulation = accumulation;
                for (const ToySharding& sharding : on_all_nodes(strategy, ranks)) {
                    expect_close(train_toy(world(), sharding, kSteps, micro_batches), expected,
                                 sharding.describe());
                }
            }
        }
    }
}

// pytorch 155903, 125484: replicas that reduce late must hold the same bits afterwards.
TEST(Stores, ReplicasStayBitIdenticalWhenTheyReduceOnceAStep) {
    if (world().size() != 4) GTEST_SKIP() << "two replicas of two shards: needs 4 ranks";
    for (const SumOrder order : {SumOrder::kTree, SumOrder::kFast}) {
        ToyTraining training(world(), {.strategy = "hybrid_shard", .group_size = 2, .order = order},
                             3);
        training.run(0, kSteps);
        const auto mine = training.parameters();
        const std::vector<double> part(mine.begin(), mine.end());
        std::vector<double> all(4 * part.size());
        world().all_gather(part, all);
        for (std::size_t rank = 1; rank < 4; ++rank) {
            EXPECT_TRUE(std::equal(part.begin(), part.end(),
                                   all.begin() + static_cast<std::ptrdiff_t>(rank * part.size())));
        }
    }
}

TEST(Stores, PoisonBetweenUsesAndRandomDelaysChangeNothing) {
    const auto expected = train_toy_serially(kSteps, world().size(), 2);
    for (const std::uint64_t seed : {1, 2}) {
        for (ToySharding strategy : strategies_once(world().size())) {
            strategy.faults = {.max_delay_us = 200, .poison = true, .seed = seed};
            for (const ToySharding& sharding : on_all_nodes(strategy, world().size())) {
                EXPECT_TRUE(same_bits(train_toy(world(), sharding, kSteps, 2), expected))
                    << sharding.describe() << ", seed " << seed;
            }
        }
    }
}

TEST(Stores, AProgressThreadChangesNothing) {
    const auto expected = train_toy_serially(kSteps, world().size(), 2);
    for (ToySharding strategy : strategies_once(world().size())) {
        strategy.progress_thread = true;
        for (const std::int64_t delay_us : {0, 200}) {
            strategy.faults = {.max_delay_us = delay_us, .poison = true, .seed = 3};
            for (const ToySharding& sharding : on_all_nodes(strategy, world().size())) {
                EXPECT_TRUE(same_bits(train_toy(world(), sharding, kSteps, 2), expected))
                    << sharding.describe();
            }
        }
    }
}

TEST(Stores, PoisonReachesWhoeverReadsAReleasedSlot) {
    ToyTraining training(world(), {.store = StorePreference::kSlotted, .faults = {.poison = true}},
                         1);
    UnitStore& store = training.store();
    {
        const Lease lease = store.unshard({1});
        for (const float value : store.unsharded(1).as<float>()) ASSERT_FALSE(std::isnan(value));
    }
    world().barrier();
    for (const float value : store.unsharded(1).as<float>()) ASSERT_TRUE(std::isnan(value));
    world().barrier();
}

TEST(Stores, UnshardedMemoryNeverMoves) {
    for (const ToySharding& sharding : on_all_nodes({}, world().size())) {
        ToyTraining training(world(), sharding, 1);
        std::vector<std::byte*> before, after;
        const auto units = static_cast<std::int64_t>(training.layout().units.size());
        for (std::int64_t u = 0; u < units; ++u)
            before.push_back(training.store().unsharded(u).data);
        training.run(0, 2);
        for (std::int64_t u = 0; u < units; ++u)
            after.push_back(training.store().unsharded(u).data);
        EXPECT_EQ(before, after) << sharding.describe();
    }
}

TEST(Strategies, GroupSizesFollowTheTableUnlessAskedFor) {
    const comm::Topology topology = comm::find_topology(world(), world().size() == 4 ? 2 : 0);
    EXPECT_EQ(group_size(find_strategy("full_shard"), 0, topology), world().size());
    EXPECT_EQ(group_size(find_strategy("hybrid_shard"), 0, topology), topology.node_sizes.front());
    EXPECT_EQ(group_size(find_strategy("no_shard"), 0, topology), 1);
    EXPECT_EQ(group_size(find_strategy("full_shard"), 1, topology), 1);
    EXPECT_THROW(group_size(find_strategy("zero1"), world().size() + 1, topology), UsageError);
}

TEST(ChooseStore, FollowsStrategyPreferenceAndNodes) {
    const Strategy& full = find_strategy("full_shard");
    const Place one_node{0, 4, 0, 1}, two_nodes{0, 2, 0, 2};
    EXPECT_EQ(choose_store(full, StorePreference::kAuto, one_node), StoreKind::kResident);
    EXPECT_EQ(choose_store(full, StorePreference::kSlotted, one_node), StoreKind::kSlotted);
    EXPECT_EQ(choose_store(full, StorePreference::kAuto, two_nodes), StoreKind::kSlotted);
    EXPECT_THROW(choose_store(full, StorePreference::kResident, two_nodes), UsageError);
    EXPECT_EQ(choose_store(find_strategy("no_shard"), StorePreference::kAuto, one_node),
              StoreKind::kPrivate);
    EXPECT_THROW(find_strategy("zero9"), UsageError);
}

}  // namespace
}  // namespace fullshard::shard
