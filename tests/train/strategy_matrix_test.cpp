// A user's choice of strategy, wrapping, prefetching, slots and activation checkpointing must not
// show in the numbers: the first row of the promise in README.md, with dropout on.
#include "support/mpi_world.h"
#include "train/training_outcome.h"

#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

using fullshard::testing::expect_close;
using fullshard::testing::on_first_ranks;
using fullshard::testing::RigOptions;
using fullshard::testing::run_training;
using fullshard::testing::Sharding;
using fullshard::testing::TrainingOutcome;
using fullshard::testing::unsharded;
using fullshard::testing::world;

constexpr std::uint64_t kSeed = 5;
constexpr std::int64_t kSteps = 3;
constexpr std::int64_t kGlobalMicroBatches = 4;

/// Pre-norm GELU with a tied head: the embedding's unit is visited twice in each pass.
spec::SimpleTransformer model() {
    return {.vocab_size = 19,
            .d_model = 8,
            .num_heads = 2,
            .num_layers = 3,
            .d_ff = 12,
            .max_positions = 9,
            .dropout = 0.2,
            .activation = spec::Activation::kGelu,
            .norm_first = true,
            .tie_embeddings = true};
}

std::string describe(const Sharding& s) {
    return std::string("strategy ") + std::to_string(static_cast<int>(s.shard.strategy)) +
           ", group " + std::to_string(s.shard.group_size) + ", wrap " +
           std::to_string(static_cast<int>(s.shard.wrap_policy)) + ", prefetch " +
           std::to_string(static_cast<int>(s.shard.prefetch)) + ", slots " +
           std::to_string(s.shard.slots) + ", store " +
           std::to_string(static_cast<int>(s.shard.store)) + ", ranks a node " +
           std::to_string(s.ranks_per_node) + (s.node_shared ? "" : ", unshared") +
           ", checkpointing " + std::to_string(s.activation_checkpointing);
}

/// Every strategy with every wrap policy and every kind of activation checkpointing; prefetch
/// policies and numbers of slots take turns, so that each meets each strategy.
std::vector<Sharding> strategy_matrix() {
    using config::Prefetch;
    using config::Strategy;
    using config::WrapPolicy;
    constexpr Prefetch kPrefetches[] = {Prefetch::kBoth, Prefetch::kOff, Prefetch::kForward,
                                        Prefetch::kBackwardPre, Prefetch::kBackwardPost};
    std::vector<Sharding> list;
    for (const Strategy strategy :
         {Strategy::kNoShard, Strategy::kZero1, Strategy::kShardGradOp, Strategy::kFullShard,
          Strategy::kHybridShard, Strategy::kHybridShardZero2}) {
        for (const WrapPolicy wrap : {WrapPolicy::kModel, WrapPolicy::kBlock, WrapPolicy::kSize}) {
            for (const std::int64_t checkpointing : {0, 1, 2}) {
                Sharding sharding;
                sharding.shard.strategy = strategy;
                sharding.shard.wrap_policy = wrap;
                sharding.shard.min_num_params = 700;  // two layers
                sharding.shard.prefetch = kPrefetches[list.size() % std::size(kPrefetches)];
                sharding.shard.slots =
                    2 + static_cast<std::int64_t>(list.size() / std::size(kPrefetches)) % 2;
                sharding.activation_checkpointing = checkpointing;
                list.push_back(sharding);
            }
        }
    }
    return list;
}

/// The same on one node, on two, without shared memory, and in slots.
std::vector<Sharding> on_all_nodes(const Sharding& sharding, int ranks) {
    std::vector<Sharding> list(3, sharding);
    list[1].shard.store = config::Store::kSlotted;
    list[2].shard.store = config::Store::kSlotted;
    list[2].node_shared = false;
    if (ranks == 4) {
        list.push_back(sharding);
        list.back().ranks_per_node = 2;
    }
    return list;
}

RigOptions options_for(const Sharding& sharding, int ranks, DType param = DType::kFloat32) {
    RigOptions options{
        .sharding = sharding, .micro_batches = kGlobalMicroBatches / ranks, .seed = kSeed};
    options.optimizer.clip_norm = 1.0;
    options.precision.param = param;
    return options;
}

TrainingOutcome train_alone(DType param = DType::kFloat32) {
    return run_training(comm::Group::self(world().timeout_s()), model(),
                        options_for(unsharded(), 1, param), kSteps);
}

TEST(StrategyMatrix, EveryChoiceGivesTheBitsOfOneUnshardedRank) {
    const int ranks = world().size();
    if (ranks == 3) GTEST_SKIP() << "three ranks sum in another tree than one";
    const TrainingOutcome expected = train_alone();
    const std::vector<Sharding> choices = strategy_matrix();
    for (std::size_t i = 0; i < choices.size(); ++i) {
        // Two ways to lie on nodes for each, all of them in turn.
        const std::vector<Sharding> nodes = on_all_nodes(choices[i], ranks);
        for (const std::size_t way : {i % nodes.size(), (i + 1) % nodes.size()}) {
            EXPECT_TRUE(run_training(world(), model(), options_for(nodes[way], ranks), kSteps) ==
                        expected)
                << describe(nodes[way]);
        }
    }
}

TEST(StrategyMatrix, EveryGroupSizeGivesTheSameBits) {
    const int ranks = world().size();
    if (ranks == 3) GTEST_SKIP() << "three ranks sum in another tree than one";
    const TrainingOutcome expected = train_alone();
    for (int group = 1; group <= ranks; ++group) {
        if (ranks % group != 0) continue;
        for (const auto strategy : {config::Strategy::kZero1, config::Strategy::kShardGradOp,
                                    config::Strategy::kFullShard}) {
            Sharding choice;
            choice.shard.strategy = strategy;
            choice.shard.group_size = group;
            for (const Sharding& sharding : on_all_nodes(choice, ranks)) {
                EXPECT_TRUE(run_training(world(), model(), options_for(sharding, ranks), kSteps) ==
                            expected)
                    << describe(sharding);
            }
        }
    }
}

TEST(StrategyMatrix, ReshardingToASmallerGroupGivesTheSameBits) {
    if (world().size() != 4) GTEST_SKIP() << "two of four ranks gather again: needs 4";
    const TrainingOutcome expected = train_alone();
    Sharding choice;
    choice.shard.reshard_after_forward = {config::ReshardAfterForward::Kind::kGroup, 2};
    for (const Sharding& sharding : on_all_nodes(choice, 4)) {
        EXPECT_TRUE(run_training(world(), model(), options_for(sharding, 4), kSteps) == expected)
            << describe(sharding);
    }
}

// World-size independence: (ranks, accumulation) = (1, 4), (2, 2), (4, 1), parameters, moments and
// logged norms, in both compute types of the promise.
TEST(StrategyMatrix, RanksAndAccumulationAreInterchangeable) {
    if (world().size() != 4) GTEST_SKIP() << "compares 1, 2 and 4 ranks: needs 4";
    for (const DType param : {DType::kFloat32, DType::kBFloat16}) {
        const TrainingOutcome expected = train_alone(param);
        for (const int ranks : {1, 2, 4}) {
            on_first_ranks(ranks, [&](const comm::Group& group) {
                for (const auto strategy :
                     {config::Strategy::kNoShard, config::Strategy::kZero1,
                      config::Strategy::kShardGradOp, config::Strategy::kFullShard}) {
                    Sharding choice;
                    choice.shard.strategy = strategy;
                    for (const Sharding& sharding : on_all_nodes(choice, ranks)) {
                        EXPECT_TRUE(run_training(group, model(),
                                                 options_for(sharding, ranks, param),
                                                 kSteps) == expected)
                            << describe(sharding) << ", " << name_of(param) << " on " << ranks;
                    }
                }
            });
        }
    }
}

TEST(StrategyMatrix, FastOrderAndUnshardedAccumulationAgreeToRounding) {
    const int ranks = world().size();
    const std::int64_t micro_batches = ranks == 3 ? 2 : kGlobalMicroBatches / ranks;
    RigOptions alone = options_for(unsharded(), 1);
    alone.micro_batches = micro_batches * ranks;
    const TrainingOutcome expected =
        run_training(comm::Group::self(world().timeout_s()), model(), alone, kSteps);
    for (const Sharding& choice : strategy_matrix()) {
        if (choice.activation_checkpointing > 0) continue;  // which adds nothing to sums
        for (const auto accumulation :
             {config::Accumulation::kSharded, config::Accumulation::kUnsharded}) {
            RigOptions options = options_for(choice, 1);
            options.micro_batches = micro_batches;
            options.sharding.reduce = {config::ReduceOrder::kFast, accumulation};
            expect_close(run_training(world(), model(), options, kSteps), expected,
                         describe(choice) + ", fast");
        }
    }
}

}  // namespace
}  // namespace fullshard::train
