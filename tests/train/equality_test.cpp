// The promise of DESIGN section 5: equal bits for every store and every power-of-two world.
#include "model/gpt2.h"
#include "model/llama.h"
#include "support/mpi_world.h"
#include "train/training_outcome.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

using fullshard::testing::expect_close;
using fullshard::testing::full_shard;
using fullshard::testing::on_first_ranks;
using fullshard::testing::run_training;
using fullshard::testing::Sharding;
using fullshard::testing::shardings;
using fullshard::testing::small_loader;
using fullshard::testing::TrainingOutcome;
using fullshard::testing::TrainingRig;
using fullshard::testing::unsharded;
using fullshard::testing::world;

constexpr std::uint64_t kSeed = 11;
constexpr std::int64_t kSteps = 10;

spec::SimpleTransformer small_model(double dropout) {
    return {.vocab_size = 23,
            .d_model = 12,
            .num_heads = 3,
            .num_layers = 3,
            .d_ff = 20,
            .max_positions = 9,
            .dropout = dropout};
}

TrainingOutcome train(const comm::Group& ranks, const spec::SimpleTransformer& model,
                      const Sharding& sharding, std::int64_t micro_batches) {
    return run_training(ranks, model,
                        {.sharding = sharding, .micro_batches = micro_batches, .seed = kSeed},
                        kSteps);
}

/// The reference on one rank, known to every rank.
TrainingOutcome train_alone(const spec::SimpleTransformer& model, std::int64_t micro_batches) {
    return train(comm::Group::self(world().timeout_s()), model, unsharded(), micro_batches);
}

TEST(Equality, StoresAndPowerOfTwoWorldsGiveEqualBits) {
    for (const double dropout : {0.0, 0.2}) {
        const TrainingOutcome expected = train_alone(small_model(dropout), 4);
        for (const int ranks : {1, 2, 4}) {
            if (ranks > world().size()) continue;
            on_first_ranks(ranks, [&](const comm::Group& group) {
                for (const Sharding& sharding : shardings(ranks)) {
                    EXPECT_TRUE(train(group, small_model(dropout), sharding, 4 / ranks) == expected)
                        << sharding.name << " on " << ranks << " ranks, dropout " << dropout;
                }
            });
        }
    }
}

// https://github.com/allenai/OLMo-core/pull/319, https://github.com/pytorch/torchtitan/issues/670:
// replicas that started with other values trained side by side and nobody saw it.
TEST(Equality, Gpt2AndLlamaStartAndTrainWithTheSameBitsInEveryWorld) {
    constexpr std::int64_t kVocabulary = 23;
    const spec::Gpt2 gpt2{.vocab_size = kVocabulary,
                          .padded_vocab_size = 24,
                          .max_positions = 9,
                          .d_model = 12,
                          .num_heads = 3,
                          .num_layers = 2,
                          .d_ff = 20,
                          .dropout = 0.2};
    const spec::Llama llama{.vocab_size = kVocabulary,
                            .padded_vocab_size = 24,
                            .d_model = 12,
                            .num_heads = 4,
                            .num_kv_heads = 2,
                            .head_size = 4,
                            .num_layers = 2,
                            .d_ff = 20,
                            .tie_embeddings = true};
    for (const auto& model : {model::make_gpt2(gpt2), model::make_llama(llama)}) {
        const auto train_on = [&](const comm::Group& ranks, const Sharding& sharding) {
            return run_training(
                ranks, model, kVocabulary,
                {.sharding = sharding, .micro_batches = 4 / ranks.size(), .seed = kSeed}, kSteps);
        };
        const TrainingOutcome expected =
            train_on(comm::Group::self(world().timeout_s()), unsharded());
        for (const int ranks : {1, 2, 4}) {
            if (ranks > world().size()) continue;
            on_first_ranks(ranks, [&](const comm::Group& group) {
                for (const Sharding& sharding : shardings(ranks)) {
                    EXPECT_TRUE(train_on(group, sharding) == expected)
                        << model->spec().family << ": " << sharding.name << " on " << ranks
                        << " ranks";
                }
            });
        }
    }
}

TEST(Equality, PoisonedSlotsAndLateRanksChangeNothing) {
    const std::int64_t micro_batches = 2;
    const TrainingOutcome expected = train(world(), small_model(0.1), unsharded(), micro_batches);
    for (Sharding sharding : shardings(world().size())) {
        sharding.fault = {.delay_us = 200, .poison = true};
        EXPECT_TRUE(train(world(), small_model(0.1), sharding, micro_batches) == expected)
            << sharding.name;
    }
}

TEST(Equality, AProgressThreadChangesNothing) {
    const std::int64_t micro_batches = 2;
    const TrainingOutcome expected = train(world(), small_model(0.1), unsharded(), micro_batches);
    for (Sharding sharding : shardings(world().size())) {
        sharding.progress_thread = true;
        for (const std::int64_t delay_us : {0, 200}) {
            sharding.fault = {.delay_us = delay_us, .poison = true};
            EXPECT_TRUE(train(world(), small_model(0.1), sharding, micro_batches) == expected)
                << sharding.name << ", delays of " << delay_us << " us";
        }
    }
}

// Three ranks with accumulation sum in another tree than one rank: the second row of the promise.
TEST(Equality, ThreeRanksAgreeToRounding) {
    if (world().size() != 3) GTEST_SKIP() << "needs 3 ranks";
    const TrainingOutcome expected = train_alone(small_model(0.0), 6);
    for (const Sharding& sharding : shardings(3)) {
        const TrainingOutcome actual = train(world(), small_model(0.0), sharding, 2);
        expect_close(actual, expected, sharding.name);
    }
}

// Embedding and head have fewer elements than a cache line a rank: most shards are padding only.
TEST(Equality, UnitsSmallerThanTheWorld) {
    const spec::SimpleTransformer tiny{
        .vocab_size = 3, .d_model = 1, .num_heads = 1, .num_layers = 1, .d_ff = 1, .dropout = 0.0};
    const std::int64_t micro_batches = world().size() == 3 ? 1 : 4 / world().size();
    const TrainingOutcome expected = train_alone(tiny, micro_batches * world().size());
    for (const Sharding& sharding : shardings(world().size())) {
        EXPECT_TRUE(train(world(), tiny, sharding, micro_batches) == expected) << sharding.name;
    }
}

TEST(Evaluator, LeavesNoTraceInTraining) {
    const auto losses = [&](bool evaluating) {
        TrainingRig rig(world(), small_model(0.3),
                        {.sharding = full_shard(config::Store::kResident), .seed = kSeed});
        const data::TrainingLoader data = small_loader(23, world().size());
        const data::ValidationLoader validation(data.windows(), 3);
        std::vector<double> list;
        for (std::int64_t step = 0; step < 4; ++step) {
            if (evaluating) rig.evaluate(validation);
            const auto load = [&](std::int64_t g) {
                data::TokenBatch batch;
                data.load(step, g, batch);
                return batch;
            };
            list.push_back(rig.accumulate(step, load, data.valid_targets(step)).loss);
            rig.update(3e-3);
        }
        return list;
    };
    EXPECT_EQ(losses(true), losses(false));
}

}  // namespace
}  // namespace fullshard::train
