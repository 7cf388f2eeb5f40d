// Whole trainings by the code of devices, on memory of the host: against the host's own.
#include "support/mpi_world.h"
#include "train/training_outcome.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace fullshard::train {
namespace {

using fullshard::testing::expect_close;
using fullshard::testing::full_shard;
using fullshard::testing::RigOptions;
using fullshard::testing::run_training;
using fullshard::testing::Sharding;
using fullshard::testing::TrainingOutcome;
using fullshard::testing::world;

constexpr std::int64_t kSteps = 5;

spec::SimpleTransformer small_model(bool tied) {
    return {.vocab_size = 23,
            .d_model = 12,
            .num_heads = 3,
            .num_layers = 3,
            .d_ff = 20,
            .max_positions = 9,
            .dropout = 0.2,
            .tie_embeddings = tied};
}

Sharding by(config::Strategy strategy, std::int64_t group_size = 0) {
    Sharding sharding = full_shard(config::Store::kSlotted);
    sharding.node_shared = false;
    sharding.reduce.order = config::ReduceOrder::kFast;
    sharding.shard.strategy = strategy;
    sharding.shard.group_size = group_size;
    return sharding;
}

TEST(DeviceTraining, AgreesWithTheHostForEveryStrategy) {
    std::vector<Sharding> list{by(config::Strategy::kFullShard), by(config::Strategy::kZero1),
                               by(config::Strategy::kShardGradOp), by(config::Strategy::kNoShard)};
    if (world().size() % 2 == 0) {
        list.push_back(by(config::Strategy::kHybridShard, world().size() / 2));
    }
    list.push_back(list[0]);
    list.back().activation_checkpointing = 1;
    list.push_back(list[0]);
    list.back().reduce.accumulation = config::Accumulation::kUnsharded;
    for (const bool tied : {false, true}) {
        for (const Sharding& sharding : list) {
            RigOptions options{.sharding = sharding,
                               .micro_batches = 2,
                               .seed = 11,
                               .optimizer = {.lr = 1e-3, .clip_norm = 0.5}};
            const TrainingOutcome host = run_training(world(), small_model(tied), options, kSteps);
            options.on_device = true;
            expect_close(run_training(world(), small_model(tied), options, kSteps), host,
                         "strategy " + std::to_string(static_cast<int>(sharding.shard.strategy)) +
                             (tied ? ", tied" : ""));
        }
    }
}

RigOptions in(DType type) {
    return {.sharding = by(config::Strategy::kFullShard),
            .micro_batches = 2,
            .seed = 11,
            .optimizer = {.lr = 1e-3},
            .precision = {.param = type, .initial_scale = 0x1p30, .scale_hysteresis = 1},
            .on_device = true};
}

TEST(DeviceTraining, HalfWidthComesAsCloseAsItsRounding) {
    RigOptions options = in(DType::kBFloat16);
    const TrainingOutcome device = run_training(world(), small_model(false), options, kSteps);
    options.on_device = false;
    const TrainingOutcome host = run_training(world(), small_model(false), options, kSteps);
    for (std::size_t step = 0; step < host.losses.size(); ++step) {
        // The host rounds gradients to bf16 before it sums them.
        EXPECT_NEAR(device.losses[step], host.losses[step], 0.01 * host.losses[step]) << step;
    }
}

// The scale of the first steps is too large for fp16: they are skipped, and change nothing.
TEST(DeviceTraining, OverflowsHalveTheScaleUntilStepsCount) {
    const TrainingOutcome outcome =
        run_training(world(), small_model(false), in(DType::kFloat16), 20);
    EXPECT_FALSE(std::isfinite(outcome.norms.front()));
    EXPECT_TRUE(std::isfinite(outcome.norms.back()));
    EXPECT_LT(outcome.losses.back(), outcome.losses.front());
}

}  // namespace
}  // namespace fullshard::train
