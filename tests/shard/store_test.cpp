#include "base/error.h"
#include "shard/toy_training.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fullshard::shard {
namespace {

using fullshard::testing::make_toy_world;
using fullshard::testing::same_bits;
using fullshard::testing::ToyWorld;
using fullshard::testing::train_toy;
using fullshard::testing::train_toy_serially;
using fullshard::testing::world;

constexpr std::int64_t kSteps = 6;

/// How ranks are cut into nodes, and which store runs on them.
struct Case {
    const char* name;
    StoreKind kind;
    int ranks_per_node;
    bool node_shared;
};

std::vector<Case> cases() {
    std::vector<Case> list{{"private", StoreKind::kPrivate, 0, true},
                           {"resident", StoreKind::kResident, 0, true},
                           {"slotted_on_a_node", StoreKind::kSlotted, 0, true},
                           {"slotted_without_sharing", StoreKind::kSlotted, 0, false},
                           {"slotted_one_rank_a_node", StoreKind::kSlotted, 1, true}};
    if (world().size() == 4) list.push_back({"slotted_on_2x2_nodes", StoreKind::kSlotted, 2, true});
    return list;
}

// Every store, on every cut of the ranks, gives the bits of plain loops in one process. The tree of
// three ranks is (0+1)+2, which with an accumulation of 1 is also the oracle's.
TEST(Stores, GiveTheBitsOfPlainLoops) {
    for (const std::int64_t micro_batches : {1, 2, 4}) {
        if (world().size() == 3 && micro_batches > 1) continue;
        const auto expected = train_toy_serially(kSteps, micro_batches * world().size());
        for (const Case& c : cases()) {
            const ToyWorld toy = make_toy_world(world(), c.ranks_per_node, c.node_shared);
            EXPECT_TRUE(same_bits(train_toy(toy, c.kind, kSteps, micro_batches), expected))
                << c.name << ", " << micro_batches << " micro-batches";
        }
    }
}

TEST(Stores, DifferentWorldSizesGiveEqualBitsForTheSameGlobalBatch) {
    if (world().size() != 4) GTEST_SKIP() << "compares 1, 2 and 4 ranks: needs 4";
    const auto expected = train_toy_serially(kSteps, 4);
    for (const int ranks : {1, 2, 4}) {
        fullshard::testing::on_first_ranks(ranks, [&](const comm::Group& group) {
            for (const StoreKind kind :
                 {StoreKind::kPrivate, StoreKind::kResident, StoreKind::kSlotted}) {
                const ToyWorld toy = make_toy_world(group, 0, true);
                EXPECT_TRUE(same_bits(train_toy(toy, kind, kSteps, 4 / ranks), expected)) << ranks;
            }
        });
    }
}

// Three ranks with accumulation sum in another tree than one rank would: close, not equal.
TEST(Stores, ThreeRanksWithAccumulationAreCloseToPlainLoops) {
    if (world().size() != 3) GTEST_SKIP() << "needs 3 ranks";
    const auto expected = train_toy_serially(kSteps, 6);
    for (const Case& c : cases()) {
        const auto actual =
            train_toy(make_toy_world(world(), c.ranks_per_node, c.node_shared), c.kind, kSteps, 2);
        ASSERT_EQ(actual.size(), expected.size());
        for (std::size_t i = 0; i < actual.size(); ++i) {
            ASSERT_NEAR(actual[i], expected[i], 1e-5 * (1.0 + std::abs(expected[i]))) << c.name;
        }
    }
}

TEST(Stores, PoisonBetweenUsesAndRandomDelaysChangeNothing) {
    const auto expected = train_toy_serially(kSteps, world().size() == 3 ? 3 : 2 * world().size());
    const std::int64_t micro_batches = world().size() == 3 ? 1 : 2;
    for (const Case& c : cases()) {
        for (const std::uint64_t seed : {1, 2, 3}) {
            const ToyWorld toy = make_toy_world(world(), c.ranks_per_node, c.node_shared);
            const Faults faults{.max_delay_us = 300, .poison = true, .seed = seed};
            EXPECT_TRUE(same_bits(train_toy(toy, c.kind, kSteps, micro_batches, faults), expected))
                << c.name << ", seed " << seed;
        }
    }
}

TEST(Stores, PoisonReachesWhoeverReadsAReleasedSlot) {
    const ToyWorld toy = make_toy_world(world(), 0, true);
    const Layout layout = make_block_layout(fullshard::testing::toy_model(), world().size());
    const auto store = make_store(StoreKind::kSlotted, layout, toy.topology.world, toy.lanes,
                                  {.faults = {.poison = true}});
    {
        const Lease lease = store->unshard(1);
        for (const float value : store->unsharded(1)) ASSERT_FALSE(std::isnan(value));
    }
    toy.topology.world.barrier();
    for (const float value : store->unsharded(1)) ASSERT_TRUE(std::isnan(value));
    toy.topology.world.barrier();
}

TEST(Stores, UnshardedMemoryNeverMoves) {
    for (const Case& c : cases()) {
        const ToyWorld toy = make_toy_world(world(), c.ranks_per_node, c.node_shared);
        const Layout layout = make_block_layout(fullshard::testing::toy_model(),
                                                c.kind == StoreKind::kPrivate ? 1 : world().size());
        const auto store = make_store(c.kind, layout, toy.topology.world, toy.lanes, {});
        std::vector<float*> before, after;
        for (std::int64_t u = 0; u < 7; ++u) before.push_back(store->unsharded(u).data());
        fullshard::testing::run_toy_training(*store, layout, toy.topology.world, 2, 1);
        for (std::int64_t u = 0; u < 7; ++u) after.push_back(store->unsharded(u).data());
        EXPECT_EQ(before, after) << c.name;
        toy.topology.world.barrier();
    }
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
