// Reported mistakes with ranks that see different things, with what is not finite, and with memory
// that is used again (tests/README.md).
#include "comm/collective_counter.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"
#include "train/grad_norm.h"
#include "train/reported_bugs.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace fullshard::train {
namespace {

using fullshard::testing::all_strategies;
using fullshard::testing::alone;
using fullshard::testing::joined;
using fullshard::testing::kSeed;
using fullshard::testing::made_up_batch;
using fullshard::testing::same_bits;
using fullshard::testing::Sharding;
using fullshard::testing::small_model;
using fullshard::testing::TrainingRig;
using fullshard::testing::unsharded;
using fullshard::testing::world;

bool on_last_rank() {
    return world().rank() + 1 == world().size();
}

void ignore_all_targets(data::TokenBatch& batch) {
    std::ranges::fill(batch.targets, data::kIgnoredTarget);
    batch.valid_targets = 0;
}

// https://github.com/pytorch/torchtitan/pull/3863: the rank that sees a NaN raises, the others wait
// for it. https://github.com/deepspeedai/DeepSpeed/issues/8415: steps are skipped silently.
TEST(ReportedBugs, NanOnOneRankEndsAllRanksAlike) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    for (const Sharding& sharding : all_strategies(world().size())) {
        TrainingRig rig(world(), small_model(0.1), {.sharding = sharding, .seed = kSeed});
        const double factor = on_last_rank() ? kNan : 0.1;
        rig.engine().train(made_up_batch(0, world().rank(), 23), {0, world().rank()}, factor);
        rig.store().finish_reductions();
        const double norm = global_grad_norm(rig.optimizer().device(), rig.store(), rig.layout(),
                                             rig.gradient_group());
        EXPECT_TRUE(std::isnan(norm)) << sharding.name;
        using Action = StepDecision::Action;
        for (const auto& [policy, action] : {std::pair{config::OnNonfinite::kAbort, Action::kAbort},
                                             {config::OnNonfinite::kSkip, Action::kSkip}}) {
            const StepDecision decision = StepJudge(policy, {}).decide({10, 1.0, norm});
            EXPECT_EQ(decision.action, action) << sharding.name;
            EXPECT_NE(decision.reason, "");
        }
    }
}

// https://github.com/deepspeedai/DeepSpeed/pull/8035
TEST(ReportedBugs, OverflowOnOneRankSkipsTheStepOnAllRanks) {
    constexpr std::int64_t kScale = 1 << 20;
    const config::Precision precision{.param = DType::kFloat16,
                                      .initial_scale = static_cast<double>(kScale),
                                      .scale_hysteresis = 1};
    for (const Sharding& sharding : all_strategies(world().size())) {
        TrainingRig rig(world(), small_model(0.1),
                        {.sharding = sharding, .seed = kSeed, .precision = precision});
        const auto before = joined(rig.parameters());
        const auto load = [](std::int64_t g) { return made_up_batch(0, g, 23); };
        // The divisor undoes the scale on all ranks but the last.
        rig.accumulate(0, load, on_last_rank() ? 1 : kScale);
        const bool updated = rig.update(0.01);
        EXPECT_FALSE(updated) << sharding.name;
        EXPECT_EQ(rig.judge().loss_scale(), kScale / 2) << sharding.name;
        EXPECT_TRUE(same_bits(joined(rig.parameters()), before)) << sharding.name;
        EXPECT_EQ(rig.optimizer().step_count(), 0);
        rig.accumulate(1, load, kScale);
        EXPECT_TRUE(rig.update(0.01)) << sharding.name;
        EXPECT_FALSE(same_bits(joined(rig.parameters()), before)) << sharding.name;
    }
}

// https://github.com/deepspeedai/DeepSpeed/issues/2686,
// https://github.com/deepspeedai/DeepSpeed/pull/8588: gradients of such a step are half as large.
TEST(ReportedBugs, StepThatDoublesTheLossScaleIsUnscaledByItsOwn) {
    const auto norms = [](const config::Precision& precision) {
        TrainingRig rig(world(), small_model(0.0), {.seed = kSeed, .precision = precision});
        std::vector<double> list;
        for (std::int64_t step = 0; step < 5; ++step) {
            const auto load = [&](std::int64_t g) { return made_up_batch(step, g, 23); };
            list.push_back(rig.accumulate(step, load, 10).grad_norm);
            rig.update(0.0);  // equal parameters in all steps of both runs
        }
        list.push_back(rig.judge().loss_scale());
        return list;
    };
    const auto fixed = norms({.param = DType::kFloat16, .loss_scale = 64});
    const auto doubling = norms({.param = DType::kFloat16, .initial_scale = 64, .scale_window = 1});
    EXPECT_GT(doubling.back(), 4 * fixed.back());
    for (std::size_t step = 0; step < 5; ++step) {
        EXPECT_NEAR(doubling[step], fixed[step], 1e-3 * fixed[step]) << "step " << step;
    }
}

// https://github.com/lightseekorg/TorchSpec/issues/126,
// https://github.com/verl-project/verl/pull/5591: a rank without work leaves the others waiting.
// https://github.com/deepspeedai/DeepSpeed/issues/7773: means of means weigh tokens unequally.
TEST(ReportedBugs, OneRankWithoutValidTokensInAMicroBatch) {
    const std::int64_t total = 2 * world().size(), empty = world().size() - 1;
    const auto load = [&](std::int64_t g) {
        data::TokenBatch batch = made_up_batch(0, g, 23);
        if (g == empty) ignore_all_targets(batch);
        return batch;
    };
    const std::int64_t valid = 10 * (total - 1);
    // The reference never runs the empty micro-batch.
    TrainingRig reference(alone(), small_model(0.0),
                          {.sharding = unsharded(), .micro_batches = total - 1, .seed = kSeed});
    const TrainingRig::Step expected = reference.accumulate(
        0, [&](std::int64_t g) { return load(g < empty ? g : g + 1); }, valid);
    for (const Sharding& sharding : all_strategies(world().size())) {
        TrainingRig rig(world(), small_model(0.0),
                        {.sharding = sharding, .micro_batches = 2, .seed = kSeed});
        const TrainingRig::Step actual = rig.accumulate(0, load, valid);
        EXPECT_NEAR(actual.loss, expected.loss, 1e-6 * expected.loss) << sharding.name;
        EXPECT_NEAR(actual.grad_norm, expected.grad_norm, 1e-5 * expected.grad_norm)
            << sharding.name;
        EXPECT_TRUE(rig.update(0.01)) << sharding.name;
    }
}

struct Steps {
    std::vector<double> losses;
    std::vector<float> gradients;  ///< of the last step

    bool operator==(const Steps& other) const {
        return losses == other.losses && same_bits(gradients, other.gradients);
    }
};

/// Units of very different sizes, one of which two stages share; half of all activations dropped.
Steps train_uneven(const Sharding& sharding) {
    auto model = small_model(0.5);
    model.vocab_size = 301;
    model.tie_embeddings = true;
    TrainingRig rig(world(), model, {.sharding = sharding, .micro_batches = 2, .seed = kSeed});
    Steps steps;
    for (std::int64_t step = 0; step < 3; ++step) {
        const auto load = [&](std::int64_t g) { return made_up_batch(step, g, 301); };
        steps.losses.push_back(rig.accumulate(step, load, 10).loss);
        steps.gradients = joined(rig.gradients());
        rig.update(0.01);
    }
    return steps;
}

// https://github.com/pytorch/torchtitan/pull/2380,
// https://github.com/deepspeedai/DeepSpeed/issues/6811
TEST(ReportedBugs, RecomputedBlocksDropTheSameActivations) {
    const Steps expected = train_uneven(unsharded());
    for (Sharding sharding : all_strategies(world().size())) {
        sharding.activation_checkpointing = 1;
        EXPECT_TRUE(train_uneven(sharding) == expected) << sharding.name;
    }
}

// Memory of a unit taken over too early, or too small for the largest one:
// https://github.com/NVIDIA/Megatron-LM/pull/4810, https://github.com/NVIDIA/Megatron-LM/pull/5222,
// https://github.com/NVIDIA/Megatron-LM/pull/2689, https://github.com/pytorch/pytorch/pull/180665.
// Parameters gathered from the wrong group when they are recomputed:
// https://github.com/deepspeedai/DeepSpeed/issues/4852
TEST(ReportedBugs, PoisonedSlotsOfUnequalUnitsUnderRecomputation) {
    const Steps expected = train_uneven(unsharded());
    const auto check = [&](Sharding sharding) {
        sharding.activation_checkpointing = 1;
        sharding.fault = {.delay_us = 100, .poison = true};
        for (const bool node_shared : {true, false}) {
            sharding.node_shared = node_shared;
            EXPECT_TRUE(train_uneven(sharding) == expected)
                << sharding.name << (node_shared ? "" : ", memory not shared");
        }
    };
    for (Sharding sharding : all_strategies(world().size())) {
        if (sharding.shard.strategy != config::Strategy::kNoShard) {
            sharding.shard.store = config::Store::kSlotted;
        }
        check(sharding);
    }
    Sharding one_slot = fullshard::testing::full_shard(config::Store::kSlotted);
    one_slot.shard.slots = 1;
    one_slot.shard.prefetch = config::Prefetch::kOff;
    check(one_slot);
    if (world().size() == 4) {
        Sharding smaller = fullshard::testing::full_shard(config::Store::kSlotted);
        smaller.name = "gathered again by two ranks";
        smaller.shard.reshard_after_forward = {config::ReshardAfterForward::Kind::kGroup, 2};
        check(smaller);
    }
}

// https://github.com/TensorAuto/OpenTau/issues/185
TEST(ReportedBugs, MasterParametersKeepTheBitsThatBf16Lacks) {
    for (const Sharding& sharding : all_strategies(world().size())) {
        TrainingRig rig(
            world(), small_model(0.1),
            {.sharding = sharding, .seed = kSeed, .precision = {.param = DType::kBFloat16}});
        const auto before = joined(rig.parameters());
        rig.accumulate(
            0, [](std::int64_t g) { return made_up_batch(0, g, 23); }, 10);
        rig.update(1e-6);  // far below the distance of bf16 numbers
        const auto after = joined(rig.parameters());
        std::size_t moved = 0, finer_than_bf16 = 0;
        for (std::size_t i = 0; i < after.size(); ++i) {
            moved += after[i] != before[i] ? 1 : 0;
            finer_than_bf16 += (std::bit_cast<std::uint32_t>(after[i]) & 0xFFFFU) != 0 ? 1 : 0;
        }
        EXPECT_GT(moved, after.size() / 2) << sharding.name;
        EXPECT_GT(finer_than_bf16, after.size() / 2) << sharding.name;
    }
}

std::int64_t collectives_to_start(const Sharding& sharding, std::int64_t layers) {
    auto model = small_model(0.0);
    model.d_model = model.num_heads = model.d_ff = 1;
    model.num_layers = layers;
    const std::int64_t before = collective_count();
    TrainingRig rig(world(), model, {.sharding = sharding, .seed = kSeed});
    return collective_count() - before;
}

// https://github.com/pytorch/pytorch/issues/95728: half an hour to compare the order of units.
TEST(ReportedBugs, StartOf200UnitsNeedsAsManyCollectivesAsOneOf3) {
    using enum config::Strategy;
    for (const auto strategy : {kNoShard, kShardGradOp, kFullShard}) {
        for (const bool node_shared : {true, false}) {
            const Sharding sharding{.name = node_shared ? "on a node" : "each in its own memory",
                                    .shard = {.strategy = strategy},
                                    .node_shared = node_shared};
            const std::int64_t few = collectives_to_start(sharding, 1);
            EXPECT_GT(few, 0) << sharding.name;
            EXPECT_EQ(collectives_to_start(sharding, 198), few) << sharding.name;
        }
    }
}

}  // namespace
}  // namespace fullshard::train
