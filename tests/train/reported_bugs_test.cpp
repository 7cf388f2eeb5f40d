// Mistakes that users of other sharded trainers reported, on every strategy: tests/README.md lists
// them. Those that need no engine are in tests/shard.
#include "train/reported_bugs.h"

#include "data/synthetic_source.h"
#include "shard/initialize.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"
#include "train/assemble.h"
#include "train/grad_norm.h"
#include "train/training_rig.h"
#include "train/update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

namespace fullshard::train {
namespace {

using fullshard::testing::all_strategies;
using fullshard::testing::alone;
using fullshard::testing::joined;
using fullshard::testing::kSeed;
using fullshard::testing::made_up_batch;
using fullshard::testing::norm_of;
using fullshard::testing::on_first_ranks;
using fullshard::testing::read_parameters;
using fullshard::testing::same_bits;
using fullshard::testing::Sharding;
using fullshard::testing::small_model;
using fullshard::testing::TrainingRig;
using fullshard::testing::unsharded;
using fullshard::testing::world;

struct Clipped {
    double norm = 0.0;
    std::vector<float> parameters;

    bool operator==(const Clipped& other) const {
        return norm == other.norm && same_bits(parameters, other.parameters);
    }
};

/// A clipped update of a model of one stage with the gradient 3 in its first element, from the
/// first rank, and 4 in its last one, from the last rank.
Clipped update_3_4_5(const comm::Group& ranks, const Sharding& sharding,
                     const std::vector<std::vector<std::int64_t>>& shapes) {
    spec::ModelSpec model{"by hand", {{"stage", {}}}};
    for (const auto& shape : shapes) {
        spec::ParameterSpec parameter;
        parameter.name = "p" + std::to_string(model.stages[0].parameters.size());
        parameter.shape = shape;
        model.stages[0].parameters.push_back(parameter);
    }
    config::Deck deck;
    deck.shard = sharding.shard;
    deck.topology.ranks_per_node = sharding.ranks_per_node;
    const ShardingPlan plan =
        plan_sharding(deck, {.micro_batch = 1, .grad_accum_steps = 1}, model, ranks);
    const auto store =
        shard::make_store(plan.kind, plan.layout, plan.schedule, plan.mesh, plan.options);
    shard::initialize_parameters(*store, plan.layout, kSeed, {});
    // A large epsilon, for AdamW hides the size of gradients.
    optim::AdamW optimizer = make_optimizer({.eps = 1}, plan.layout, *store);

    store->begin_gradients(0);
    for (std::size_t p = 0; p < shapes.size(); ++p) {
        const auto target = store->grad_sink(0).open(static_cast<std::int64_t>(p));
        const std::span<float> values = target.memory.as<float>();
        std::ranges::fill(values, 0.0F);
        if (p == 0 && ranks.rank() == 0) values.front() = 3;
        if (p + 1 == shapes.size() && ranks.rank() + 1 == ranks.size()) values.back() = 4;
    }
    store->reduce(0);
    store->finish_reductions();
    Clipped result;
    optim::HostState host;
    result.norm = global_grad_norm(host, *store, plan.layout, plan.mesh.shard_group);
    update_parameters(*store, plan.layout, optimizer, 0.1,
                      treatment_of(result.norm, 1.0, {.norm = 2.0}));
    result.parameters = joined(read_parameters(*store, plan.layout, plan.mesh.shard_group));
    ranks.barrier();
    return result;
}

// https://github.com/pytorch/pytorch/pull/88955,
// https://github.com/mindspore-ai/hyper-parallel/pull/526
TEST(ReportedBugs, NormCountsReplicatedParametersOnce) {
    const std::vector<std::vector<std::int64_t>> shapes{{3}, {500}, {}};
    const Clipped expected = update_3_4_5(alone(), unsharded(), shapes);
    EXPECT_EQ(expected.norm, 5.0);
    for (const Sharding& sharding : all_strategies(world().size())) {
        EXPECT_TRUE(update_3_4_5(world(), sharding, shapes) == expected) << sharding.name;
    }
}

// https://github.com/pytorch/torchtitan/pull/1541
TEST(ReportedBugs, RanksThatOwnNothingJoinClipping) {
    const Clipped expected = update_3_4_5(alone(), unsharded(), {{3}});
    EXPECT_EQ(expected.norm, 5.0);
    for (const Sharding& sharding : all_strategies(world().size())) {
        EXPECT_TRUE(update_3_4_5(world(), sharding, {{3}}) == expected) << sharding.name;
    }
}

struct Steps {
    std::vector<double> losses, norms;
    std::vector<float> parameters;

    bool operator==(const Steps& other) const {
        return losses == other.losses && norms == other.norms &&
               same_bits(parameters, other.parameters);
    }
};

/// Three clipped steps; the divisor of the loss is not the number of targets.
Steps train(const comm::Group& ranks, const Sharding& sharding, std::int64_t micro_batches,
            const spec::SimpleTransformer& model) {
    config::Optimizer optimizer;
    optimizer.clip_norm = 1e-3;
    optimizer.eps = 1e-3;
    TrainingRig rig(ranks, model,
                    {.sharding = sharding,
                     .micro_batches = micro_batches,
                     .seed = kSeed,
                     .optimizer = optimizer});
    Steps steps;
    for (std::int64_t step = 0; step < 3; ++step) {
        const auto load = [&](std::int64_t g) { return made_up_batch(step, g, model.vocab_size); };
        const TrainingRig::Step result = rig.accumulate(step, load, 300);
        const std::vector<float> gradients = joined(rig.gradients());
        EXPECT_NEAR(result.grad_norm, norm_of(gradients), 1e-6 * result.grad_norm);
        EXPECT_GT(result.grad_norm, optimizer.clip_norm);
        steps.losses.push_back(result.loss);
        steps.norms.push_back(result.grad_norm);
        rig.update(0.01);
    }
    steps.parameters = joined(rig.parameters());
    return steps;
}

// Other losses, norms, and clipped updates on other meshes, with and without accumulation:
// https://github.com/ByteDance-Seed/VeOmni/issues/184, https://github.com/RLinf/RLinf/pull/1558,
// https://github.com/pytorch/pytorch/issues/72548,
// https://github.com/pytorch/pytorch/issues/155903,
// https://github.com/pytorch/pytorch/issues/154888,
// https://github.com/deepspeedai/DeepSpeed/issues/1488,
// https://github.com/deepspeedai/DeepSpeed/issues/7718
TEST(ReportedBugs, LossNormAndClippedUpdateAreEqualOnEveryMesh) {
    const auto model = small_model(0.1);
    for (const std::int64_t micro_batches : {1, 3}) {
        const Steps expected = train(world(), unsharded(), micro_batches, model);
        for (const Sharding& sharding : all_strategies(world().size())) {
            EXPECT_TRUE(train(world(), sharding, micro_batches, model) == expected)
                << sharding.name << ", " << micro_batches << " micro-batches";
        }
        const Steps one_rank = train(alone(), unsharded(), micro_batches * world().size(), model);
        if (world().size() != 3) {
            EXPECT_TRUE(expected == one_rank);
        } else {
            for (std::size_t s = 0; s < 3; ++s) {
                EXPECT_NEAR(expected.norms[s], one_rank.norms[s], 1e-5 * one_rank.norms[s]);
            }
        }
    }
}

// https://github.com/NVIDIA/Megatron-LM/pull/3023: geometric weights.
// https://github.com/allenai/open-instruct/pull/1498: only the last micro-batch counts.
TEST(ReportedBugs, IdenticalMicroBatchesAddUpExactly) {
    const auto model = small_model(0.0);
    const auto load = [&](std::int64_t) { return made_up_batch(1, 2, model.vocab_size); };
    TrainingRig once(alone(), model, {.sharding = unsharded(), .seed = kSeed});
    once.accumulate(0, load, 40);
    std::vector<float> expected = joined(once.gradients());
    // Exact, also for three ranks: 2 g + g is 3 g, rounded once, and the rest are powers of two.
    for (float& value : expected) value = 4 * (static_cast<float>(world().size()) * value);
    for (const Sharding& sharding : all_strategies(world().size())) {
        TrainingRig rig(world(), model, {.sharding = sharding, .micro_batches = 4, .seed = kSeed});
        rig.accumulate(0, load, 40);
        EXPECT_TRUE(same_bits(joined(rig.gradients()), expected)) << sharding.name;
    }
}

// https://github.com/pytorch/torchtitan/pull/1758, https://github.com/pytorch/torchtitan/pull/2366:
// divided by accumulation or ranks once more. https://github.com/deepspeedai/DeepSpeed/issues/2223:
// ten samples on four ranks hang.
TEST(ReportedBugs, ValidationLossDependsOnNeitherRanksNorAccumulation) {
    const auto model = small_model(0.5);
    const auto source = std::make_shared<data::SyntheticSource>(4, 10, 5, model.vocab_size);
    const data::Windows windows(source, {0, source->size()}, 5, data::TargetRule::kNext);
    const auto evaluate = [&](const comm::Group& ranks, std::int64_t micro_batches) {
        TrainingRig rig(ranks, model, {.micro_batches = micro_batches, .seed = kSeed});
        const data::ValidationLoader loader(windows, 1);
        return rig.evaluate(loader);
    };
    TrainingRig rig(alone(), model, {.seed = kSeed});
    data::TokenBatch all;
    data::ValidationLoader(windows, 10).load(0, all);
    const double expected = rig.engine().evaluate(all) / static_cast<double>(all.valid_targets);
    const Evaluation reference = evaluate(alone(), 1);
    EXPECT_NEAR(reference.loss, expected, 1e-6 * expected);
    for (int ranks = 1; ranks <= world().size(); ++ranks) {
        on_first_ranks(ranks, [&](const comm::Group& group) {
            for (const std::int64_t micro_batches : {1, 4}) {
                const Evaluation actual = evaluate(group, micro_batches);
                EXPECT_EQ(actual.loss, reference.loss) << ranks << " ranks";
                EXPECT_EQ(actual.tokens, all.valid_targets) << ranks << " ranks";
            }
        });
    }
}

// https://github.com/pytorch/pytorch/issues/176076,
// https://github.com/pytorch/torchtitan/issues/2495: the last rank's rows stay as they are.
TEST(ReportedBugs, EveryRowOfATiedMatrixChanges) {
    constexpr std::size_t kRows = 7, kColumns = 24;  // cut within a row by three ranks
    const spec::SimpleTransformer model{.vocab_size = kRows,
                                        .d_model = kColumns,
                                        .num_heads = 2,
                                        .num_layers = 1,
                                        .d_ff = 8,
                                        .dropout = 0.0,
                                        .tie_embeddings = true};
    const auto load = [&](std::int64_t g) { return made_up_batch(0, g, model.vocab_size); };
    for (const Sharding& sharding : all_strategies(world().size())) {
        TrainingRig rig(world(), model, {.sharding = sharding, .seed = kSeed});
        const std::vector<float> before = rig.parameters().front();
        ASSERT_EQ(before.size(), kRows * kColumns);
        rig.accumulate(0, load, 10);
        rig.update(0.01);
        const std::vector<float> after = rig.parameters().front();
        for (std::size_t i = 0; i < before.size(); ++i) {
            EXPECT_NE(after[i], before[i]) << sharding.name << ", row " << i / kColumns;
        }
    }
}

}  // namespace
}  // namespace fullshard::train
