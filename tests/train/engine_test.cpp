// The engine alone, on a store of one rank: what the schedule and the options may not change, and
// what they must.
#include "train/engine.h"

#include "base/rng.h"
#include "custom_model/mixer.h"
#include "model/simple_transformer.h"
#include "train/toy_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

namespace fullshard::train {
namespace {

constexpr std::int64_t kVocabulary = 23;

spec::SimpleTransformer small_model() {
    spec::SimpleTransformer model;
    model.vocab_size = kVocabulary;
    model.d_model = 16;
    model.num_heads = 2;
    model.num_layers = 3;
    model.d_ff = 24;
    model.max_positions = 12;
    model.dropout = 0.25;
    model.norm_first = true;
    return model;
}

std::shared_ptr<const model::Model> small_mixer() {
    return mixer::make_mixer({.vocab_size = kVocabulary, .width = 8, .blocks = 3, .kernel = 3});
}

data::TokenBatch small_batch() {
    data::TokenBatch batch;
    batch.batch = 3;
    batch.sequence = 10;
    const RandomStream stream(5);
    for (std::uint64_t i = 0; i < 30; ++i) {
        batch.tokens.push_back(static_cast<std::int64_t>(stream.below(2 * i, kVocabulary)));
        batch.targets.push_back(static_cast<std::int64_t>(stream.below(2 * i + 1, kVocabulary)));
    }
    return batch;
}

struct Case {
    shard::Wrap wrap = {};
    shard::Residency residency = shard::Residency::kWhileUsed;
    shard::Prefetch prefetch = {};
    DType compute = DType::kFloat32;
    DType sink = DType::kFloat32;
    std::int64_t checkpoint_every_block = 0;
    double loss_scale = 1.0;
    std::vector<std::string> frozen = {};
    std::int64_t evaluations = 0;  ///< before the micro-batch
};

struct Outcome {
    double loss = 0;
    NamedValues gradients;
    std::int64_t unshards = 0;

    bool same_bits(const Outcome& other) const {
        return loss == other.loss && gradients == other.gradients;
    }
};

/// One training micro-batch.
Outcome run(const model::Model& model, const NamedValues& values, const Case& c) {
    spec::ModelSpec spec = model.spec();
    for (auto& stage : spec.stages) {
        for (auto& parameter : stage.parameters) {
            for (const std::string& prefix : c.frozen) {
                if (parameter.name.starts_with(prefix)) parameter.trainable = false;
            }
        }
    }
    const shard::Layout layout = shard::make_layout(spec, 1, c.wrap);
    const shard::Schedule schedule = shard::make_schedule(layout, c.residency, c.prefetch);
    ToyStore store(layout, values, c.compute, c.sink);
    PhaseClock clock;
    Engine engine(model, layout, schedule, store, clock,
                  {.seed = 3,
                   .compute = c.compute,
                   .buffer = c.compute,
                   .checkpoint_every_block = c.checkpoint_every_block});
    const data::TokenBatch batch = small_batch();
    for (std::int64_t i = 0; i < c.evaluations; ++i) engine.evaluate(batch);
    Outcome outcome;
    const std::int64_t before = store.unshards();
    outcome.loss = engine.train(batch, {.step = 2, .index = 1}, 1.0 / 30, c.loss_scale);
    outcome.unshards = store.unshards() - before;
    outcome.gradients = store.gradients();
    return outcome;
}

Outcome run(const model::Model& model, const Case& c) {
    return run(model, initial_values(model, 11), c);
}

std::vector<std::pair<std::string, std::shared_ptr<const model::Model>>> models() {
    auto tied = small_model();
    tied.tie_embeddings = true;
    return {{"plain", model::make_simple_transformer(small_model())},
            {"tied", model::make_simple_transformer(tied)},
            {"custom", small_mixer()}};
}

bool finite(const NamedValues& gradients) {
    for (const auto& [name, values] : gradients) {
        for (const float value : values) {
            if (!std::isfinite(value)) return false;
        }
    }
    return true;
}

class EngineType : public testing::TestWithParam<DType> {};

TEST_P(EngineType, BitsDependOnNeitherUnitsNorResidencyNorPrefetch) {
    using Policy = shard::WrapPolicy;
    for (const auto& [name, model] : models()) {
        const Outcome expected = run(*model, {.compute = GetParam(), .sink = GetParam()});
        EXPECT_TRUE(std::isfinite(expected.loss) && finite(expected.gradients)) << name;
        for (const shard::Wrap wrap : {shard::Wrap{Policy::kBlock}, shard::Wrap{Policy::kModel},
                                       shard::Wrap{Policy::kSize, 2000}}) {
            for (const auto residency :
                 {shard::Residency::kWhileUsed, shard::Residency::kUntilUpdate}) {
                for (const auto backward :
                     {shard::Prefetch::Backward::kOff, shard::Prefetch::Backward::kPost}) {
                    const Outcome outcome = run(*model, {.wrap = wrap,
                                                         .residency = residency,
                                                         .prefetch = {.backward = backward},
                                                         .compute = GetParam(),
                                                         .sink = GetParam()});
                    EXPECT_TRUE(outcome.same_bits(expected)) << name;
                }
            }
        }
    }
}

TEST_P(EngineType, CheckpointingChangesNoBits) {
    for (const auto& [name, model] : models()) {
        const Outcome expected = run(*model, {.compute = GetParam(), .sink = GetParam()});
        for (const std::int64_t every : {1, 2, 3, 4}) {
            for (const auto policy : {shard::WrapPolicy::kBlock, shard::WrapPolicy::kModel}) {
                EXPECT_TRUE(run(*model, {.wrap = {policy},
                                         .compute = GetParam(),
                                         .sink = GetParam(),
                                         .checkpoint_every_block = every})
                                .same_bits(expected))
                    << name << ", every " << every;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, EngineType,
                         testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& entry) { return std::string(name_of(entry.param)); });

TEST(Engine, LossScaleMultipliesGradientsOnly) {
    const auto model = model::make_simple_transformer(small_model());
    const Outcome plain = run(*model, {}), scaled = run(*model, {.loss_scale = 1024});
    EXPECT_EQ(scaled.loss, plain.loss);
    for (const auto& [name, values] : plain.gradients) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(scaled.gradients.at(name)[i], 1024 * values[i]) << name << ' ' << i;
        }
    }
}

TEST(Engine, FrozenStagesChangeNoOtherGradient) {
    const auto model = model::make_simple_transformer(small_model());
    const Outcome all = run(*model, {});
    for (const auto& frozen :
         std::vector<std::vector<std::string>>{{"embedding", "position"},
                                               {"embedding", "position", "layers.0"},
                                               {"layers.1"},
                                               {"head"},
                                               {"layers.2.norm1", "layers.0.linear1.weight"}}) {
        for (const std::int64_t every : {0, 1}) {
            const Outcome some = run(*model, {.checkpoint_every_block = every, .frozen = frozen});
            EXPECT_EQ(some.loss, all.loss);
            EXPECT_LT(some.gradients.size(), all.gradients.size());
            for (const auto& [name, values] : some.gradients) {
                EXPECT_EQ(values, all.gradients.at(name)) << name << " without " << frozen[0];
            }
        }
    }
}

TEST(Engine, BackwardEndsAtTheFirstStageThatLearns) {
    const auto model = model::make_simple_transformer(small_model());
    EXPECT_EQ(run(*model, {}).unshards, 10);  // five units, twice
    EXPECT_EQ(run(*model, {.frozen = {"embedding", "position", "layers.0"}}).unshards, 8);
}

TEST(Engine, ATiedWeightHasTheGradientOfBothUses) {
    auto tied = small_model();
    tied.tie_embeddings = true;
    const auto model = model::make_simple_transformer(tied);
    const auto untied = model::make_simple_transformer(small_model());
    NamedValues values = initial_values(*model, 11);
    values["head.weight"] = values["embedding.weight"];
    const Outcome together = run(*model, values, {}), apart = run(*untied, values, {});
    EXPECT_EQ(together.loss, apart.loss);
    EXPECT_FALSE(together.gradients.contains("head.weight"));
    const auto& sum = together.gradients.at("embedding.weight");
    for (std::size_t i = 0; i < sum.size(); ++i) {
        ASSERT_NEAR(
            sum[i],
            apart.gradients.at("embedding.weight")[i] + apart.gradients.at("head.weight")[i], 1e-6)
            << i;
    }
}

TEST(Engine, EvaluationHasNoEffectOnTraining) {
    for (const auto& [name, model] : models()) {
        EXPECT_TRUE(run(*model, {.evaluations = 2}).same_bits(run(*model, {}))) << name;
    }
}

TEST(Engine, AnFp32SinkHoldsTheGradientsOfHalfWidthTraining) {
    for (const auto& [name, model] : models()) {
        const Outcome wide = run(*model, {.compute = DType::kBFloat16});
        const Outcome narrow = run(*model, {.compute = DType::kBFloat16, .sink = DType::kBFloat16});
        EXPECT_EQ(wide.loss, narrow.loss);
        for (const auto& [parameter, values] : wide.gradients) {
            double error = 0, norm = 0;
            for (std::size_t i = 0; i < values.size(); ++i) {
                const double difference = values[i] - narrow.gradients.at(parameter)[i];
                error += difference * difference;
                norm += values[i] * values[i];
            }
            EXPECT_LE(std::sqrt(error), 6e-3 * std::sqrt(norm)) << name << ' ' << parameter;
        }
    }
}

}  // namespace
}  // namespace fullshard::train
