// The engine alone, on a store of one rank: what the schedule and the options may not change, and
// what they must.
#include "train/engine.h"

#include "base/error.h"
#include "base/rng.h"
#include "custom_model/mixer.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "model/simple_transformer.h"
#include "train/toy_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
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

spec::Gpt2 small_gpt2() {
    return {.vocab_size = kVocabulary,
            .padded_vocab_size = 32,
            .max_positions = 12,
            .d_model = 16,
            .num_heads = 2,
            .num_layers = 3,
            .d_ff = 24,
            .dropout = 0.25};
}

spec::Llama small_llama() {
    return {.vocab_size = kVocabulary,
            .padded_vocab_size = 32,
            .d_model = 16,
            .num_heads = 4,
            .num_kv_heads = 2,
            .head_size = 6,
            .num_layers = 3,
            .d_ff = 24};
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
    engine.train(batch, {.step = 2, .index = 1}, 1.0 / 30, c.loss_scale);
    outcome.loss = engine.take_losses().at(0);
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
            {"gpt2", model::make_gpt2(small_gpt2())},
            {"llama", model::make_llama(small_llama())},
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
    EXPECT_EQ(run(*model, {}).unshards, 9);  // five units, all but the head's twice
    EXPECT_EQ(run(*model, {.frozen = {"embedding", "position", "layers.0"}}).unshards, 7);
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

/// An engine on a store of its own, for passes without gradients.
class Reader {
  public:
    explicit Reader(std::shared_ptr<const model::Model> model)
        : model_(std::move(model)),
          layout_(shard::make_layout(model_->spec(), 1, {})),
          schedule_(shard::make_schedule(layout_, shard::Residency::kWhileUsed, {})),
          store_(layout_, initial_values(*model_, 11), DType::kFloat32, DType::kFloat32),
          engine_(*model_, layout_, schedule_, store_, clock_, {}) {}

    Engine* operator->() { return &engine_; }

  private:
    std::shared_ptr<const model::Model> model_;
    shard::Layout layout_;
    shard::Schedule schedule_;
    ToyStore store_;
    PhaseClock clock_;
    Engine engine_;
};

/// -log softmax(logits)[target].
double cross_entropy(std::span<const float> logits, std::int64_t target) {
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    return std::log(sum) - logits[static_cast<std::size_t>(target)];
}

// Logits of each position in turn give the loss that evaluation finds.
TEST(NextLogits, AreThoseThatTheLossIsMadeOf) {
    const data::TokenBatch batch = small_batch();
    for (const auto& [name, model] : models()) {
        Reader engine(model);
        double loss = 0;
        for (std::int64_t position = 0; position < batch.sequence; ++position) {
            // Another position in each row.
            std::vector<std::int64_t> positions;
            for (std::int64_t row = 0; row < batch.batch; ++row)
                positions.push_back((position + row) % batch.sequence);
            const std::vector<float> logits = engine->next_logits(batch, positions);
            ASSERT_EQ(std::ssize(logits), batch.batch * kVocabulary) << name;
            for (std::int64_t row = 0; row < batch.batch; ++row) {
                const auto target = batch.targets[static_cast<std::size_t>(
                    row * batch.sequence + positions[static_cast<std::size_t>(row)])];
                loss += cross_entropy(
                    std::span(logits).subspan(static_cast<std::size_t>(row * kVocabulary),
                                              static_cast<std::size_t>(kVocabulary)),
                    target);
            }
        }
        EXPECT_NEAR(loss, engine->evaluate(batch), 1e-5 * loss) << name;
    }
}

TEST(NextLogits, RefuseAPositionOutsideItsRow) {
    Reader engine(model::make_llama(small_llama()));
    const data::TokenBatch batch = small_batch();
    EXPECT_THROW(engine->next_logits(batch, std::vector<std::int64_t>{0, 1}), LogicError);
    EXPECT_THROW(engine->next_logits(batch, std::vector<std::int64_t>{0, 1, 10}), LogicError);
}

/// Rows of documents of 4, 5 and 1 tokens, told apart.
data::TokenBatch packed_batch() {
    data::TokenBatch batch = small_batch();
    for (std::int64_t row = 0; row < batch.batch; ++row) {
        std::int64_t document = 0;
        for (const std::int64_t length : {4, 5, 1}) {
            for (std::int64_t position = 0; position < length; ++position) {
                batch.positions.push_back(position);
                batch.documents.push_back(document);
            }
            ++document;
        }
    }
    return batch;
}

/// Tokens [first, last) of each row, as rows of their own.
data::TokenBatch columns(const data::TokenBatch& batch, std::int64_t first, std::int64_t last) {
    data::TokenBatch part;
    part.batch = batch.batch;
    part.sequence = last - first;
    for (std::int64_t row = 0; row < batch.batch; ++row) {
        for (std::int64_t i = row * batch.sequence + first; i < row * batch.sequence + last; ++i) {
            part.tokens.push_back(batch.tokens[static_cast<std::size_t>(i)]);
            part.targets.push_back(batch.targets[static_cast<std::size_t>(i)]);
        }
    }
    return part;
}

TEST(Documents, HaveTheLossThatTheyHaveAlone) {
    auto bidirectional = small_model();
    bidirectional.causal = false;
    const data::TokenBatch packed = packed_batch();
    for (const auto& [name, model] :
         {std::pair("causal", model::make_simple_transformer(small_model())),
          std::pair("bidirectional", model::make_simple_transformer(bidirectional)),
          std::pair("gpt2", model::make_gpt2(small_gpt2())),
          std::pair("llama", model::make_llama(small_llama()))}) {
        Reader engine(model);
        const double alone = engine->evaluate(columns(packed, 0, 4)) +
                             engine->evaluate(columns(packed, 4, 9)) +
                             engine->evaluate(columns(packed, 9, 10));
        const double together = engine->evaluate(packed);
        EXPECT_NEAR(together, alone, 1e-5 * alone) << name;
        EXPECT_GT(std::abs(engine->evaluate(small_batch()) - alone), 1e-4 * alone) << name;
    }
}

}  // namespace
}  // namespace fullshard::train
