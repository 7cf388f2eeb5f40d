// The promise of DESIGN section 5: equal bits for every store and every power-of-two world.
#include "data/synthetic_source.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"
#include "train/evaluator.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace fullshard::train {
namespace {

using fullshard::testing::joined;
using fullshard::testing::on_first_ranks;
using fullshard::testing::same_bits;
using fullshard::testing::Sharding;
using fullshard::testing::shardings;
using fullshard::testing::TrainingRig;
using fullshard::testing::world;

constexpr std::uint64_t kSeed = 11;
constexpr std::int64_t kSteps = 10;
constexpr double kRate = 3e-3;

spec::SimpleTransformer small_model(double dropout) {
    return {.vocab_size = 23,
            .d_model = 12,
            .num_heads = 3,
            .num_layers = 3,
            .d_ff = 20,
            .max_positions = 9,
            .dropout = dropout};
}

/// Training data of sequences of 9 tokens; 47 of them, so that epochs end within steps.
data::TrainingLoader loader(std::int64_t vocab_size, std::int64_t micro_batches) {
    const auto source = std::make_shared<data::SyntheticSource>(3, 47, 9, vocab_size);
    return {data::Windows(source, {0, source->size()}, 9, data::TargetRule::kNext),
            {2, micro_batches},
            kSeed,
            true};
}

struct Outcome {
    std::vector<float> parameters;
    std::vector<double> losses;
    std::vector<double> norms;
    std::vector<std::vector<float>> first_gradients;
    double validation_loss = 0.0;

    bool operator==(const Outcome& other) const {
        return same_bits(parameters, other.parameters) && losses == other.losses &&
               norms == other.norms && validation_loss == other.validation_loss;
    }
};

Outcome train(const comm::Group& ranks, const spec::SimpleTransformer& model,
              const Sharding& sharding, std::int64_t micro_batches) {
    TrainingRig rig(ranks, model, sharding, micro_batches, kSeed);
    const data::TrainingLoader data = loader(model.vocab_size, micro_batches * ranks.size());
    Outcome outcome;
    for (std::int64_t step = 0; step < kSteps; ++step) {
        const auto load = [&](std::int64_t g) {
            data::TokenBatch batch;
            data.load(step, g, batch);
            return batch;
        };
        const auto result = rig.accumulate(step, load, data.valid_targets(step));
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
        if (step == 0) outcome.first_gradients = rig.gradients();
        rig.update(kRate);
    }
    const auto held_out = std::make_shared<data::SyntheticSource>(4, 7, 9, model.vocab_size);
    const data::ValidationLoader validation(
        data::Windows(held_out, {0, held_out->size()}, 9, data::TargetRule::kNext), 2);
    outcome.validation_loss = Evaluator(rig.engine(), validation, rig.world()).evaluate().loss;
    outcome.parameters = joined(rig.parameters());
    return outcome;
}

/// The reference on one rank, known to every rank.
Outcome train_alone(const spec::SimpleTransformer& model, std::int64_t micro_batches) {
    return train(comm::Group::self(world().timeout_s()), model,
                 {"private", shard::StoreKind::kPrivate}, micro_batches);
}

TEST(Equality, StoresAndPowerOfTwoWorldsGiveEqualBits) {
    for (const double dropout : {0.0, 0.2}) {
        const Outcome expected = train_alone(small_model(dropout), 4);
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

TEST(Equality, PoisonedSlotsAndLateRanksChangeNothing) {
    const std::int64_t micro_batches = 2;
    const Sharding calm{"private", shard::StoreKind::kPrivate};
    const Outcome expected = train(world(), small_model(0.1), calm, micro_batches);
    for (Sharding sharding : shardings(world().size())) {
        sharding.faults = {.max_delay_us = 200, .poison = true, .seed = 9};
        EXPECT_TRUE(train(world(), small_model(0.1), sharding, micro_batches) == expected)
            << sharding.name;
    }
}

// Three ranks with accumulation sum in another tree than one rank: the second row of the promise.
TEST(Equality, ThreeRanksAgreeToRounding) {
    if (world().size() != 3) GTEST_SKIP() << "needs 3 ranks";
    const Outcome expected = train_alone(small_model(0.0), 6);
    for (const Sharding& sharding : shardings(3)) {
        const Outcome actual = train(world(), small_model(0.0), sharding, 2);
        for (std::size_t step = 0; step < kSteps; ++step) {
            EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-6 * expected.losses[step])
                << sharding.name << ", step " << step;
        }
        for (std::size_t p = 0; p < expected.first_gradients.size(); ++p) {
            double difference = 0.0, norm = 0.0;
            for (std::size_t e = 0; e < expected.first_gradients[p].size(); ++e) {
                difference +=
                    std::pow(actual.first_gradients[p][e] - expected.first_gradients[p][e], 2);
                norm += std::pow(expected.first_gradients[p][e], 2);
            }
            EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm))
                << sharding.name << ", parameter " << p;
        }
    }
}

// Embedding and head have fewer elements than a cache line a rank: most shards are padding only.
TEST(Equality, UnitsSmallerThanTheWorld) {
    const spec::SimpleTransformer tiny{
        .vocab_size = 3, .d_model = 1, .num_heads = 1, .num_layers = 1, .d_ff = 1, .dropout = 0.0};
    const std::int64_t micro_batches = world().size() == 3 ? 1 : 4 / world().size();
    const Outcome expected = train_alone(tiny, micro_batches * world().size());
    for (const Sharding& sharding : shardings(world().size())) {
        EXPECT_TRUE(train(world(), tiny, sharding, micro_batches) == expected) << sharding.name;
    }
}

TEST(Evaluator, LeavesNoTraceInTraining) {
    const auto losses = [&](bool evaluating) {
        TrainingRig rig(world(), small_model(0.3), {"resident", shard::StoreKind::kResident}, 1,
                        kSeed);
        const data::TrainingLoader data = loader(23, world().size());
        const data::ValidationLoader validation(data.windows(), 3);
        Evaluator evaluator(rig.engine(), validation, rig.world());
        std::vector<double> list;
        for (std::int64_t step = 0; step < 4; ++step) {
            if (evaluating) evaluator.evaluate();
            const auto load = [&](std::int64_t g) {
                data::TokenBatch batch;
                data.load(step, g, batch);
                return batch;
            };
            list.push_back(rig.accumulate(step, load, data.valid_targets(step)).loss);
            rig.update(kRate);
        }
        return list;
    };
    EXPECT_EQ(losses(true), losses(false));
}

}  // namespace
}  // namespace fullshard::train
