// One library for all ranks, and trainings that do not depend on which one it is.
#include "train/gemm_choice.h"

#include "model/gpt2.h"
#include "model/llama.h"
#include "model/simple_transformer.h"
#include "support/mpi_world.h"
#include "train/training_outcome.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace fullshard::train {
namespace {

using config::Gemm;
using fullshard::testing::expect_close;
using fullshard::testing::full_shard;
using fullshard::testing::run_training;
using fullshard::testing::TrainingOutcome;
using fullshard::testing::unsharded;
using fullshard::testing::world;

constexpr std::int64_t kVocabulary = 23;

spec::SimpleTransformer small_model() {
    return {.vocab_size = kVocabulary,
            .d_model = 12,
            .num_heads = 3,
            .num_layers = 2,
            .d_ff = 20,
            .max_positions = 9};
}

GemmChoice choose(Gemm wanted, std::optional<Gemm> kept = {}) {
    return choose_gemm({.threads = 1, .gemm = wanted}, kept,
                       *model::make_simple_transformer(small_model()), world());
}

/// The libraries that this machine has.
std::vector<Gemm> libraries() {
    std::vector<Gemm> found{Gemm::kLibTorch};
    if (kernels::load_onednn(1).gemm) found.push_back(Gemm::kOneDnn);
    if (kernels::load_openblas(1).gemm) found.push_back(Gemm::kOpenBlas);
    return found;
}

TEST(GemmChoice, TakesTheFirstThatIsThere) {
    const GemmChoice choice = choose(Gemm::kPreferred);
    if (kernels::load_onednn(1).gemm) {
        EXPECT_EQ(choice.key, Gemm::kOneDnn);
        EXPECT_TRUE(choice.description.starts_with("oneDNN ")) << choice.description;
        EXPECT_TRUE(choice.notes.empty());
    } else {
        ASSERT_EQ(choice.notes.size(), 1U);
        EXPECT_NE(choice.notes[0].find("libdnnl2"), std::string::npos) << choice.notes[0];
    }
    EXPECT_TRUE(choice.description.ends_with(" (preferred)")) << choice.description;
}

TEST(GemmChoice, TakesTheOneThatIsNamed) {
    for (const Gemm library : libraries()) EXPECT_EQ(choose(library).key, library);
    EXPECT_TRUE(choose(Gemm::kLibTorch).description.starts_with("LibTorch "));
}

TEST(GemmChoice, KeepsThatOfTheRunThatGoesOnWhereTheDeckLeavesItOpen) {
    for (const Gemm library : libraries()) {
        EXPECT_EQ(choose(Gemm::kPreferred, library).key, library);
        EXPECT_EQ(choose(Gemm::kAuto, library).key, library);
        EXPECT_EQ(choose(Gemm::kLibTorch, library).key, Gemm::kLibTorch);
    }
    EXPECT_EQ(choose(Gemm::kPreferred, Gemm::kPreferred).key, choose(Gemm::kPreferred).key);
    config::Deck before, deck;
    before.kernels.gemm = Gemm::kLibTorch;
    EXPECT_EQ(with_kept_gemm(deck, before).kernels.gemm, Gemm::kLibTorch);
    deck.kernels.gemm = Gemm::kOneDnn;
    EXPECT_EQ(with_kept_gemm(deck, before).kernels.gemm, Gemm::kOneDnn);
}

TEST(GemmChoice, MeasuresOnOneRankForAll) {
    const GemmChoice choice = choose(Gemm::kAuto);
    std::vector<std::int64_t> keys(static_cast<std::size_t>(world().size()));
    world().all_gather(std::vector{static_cast<std::int64_t>(choice.key)}, keys);
    EXPECT_EQ(std::vector(keys.size(), keys[0]), keys);
    EXPECT_NE(choice.key, Gemm::kAuto);
    const std::string count = std::to_string(libraries().size());
    EXPECT_TRUE(choice.description.ends_with(" (the fastest of " + count + ")"))
        << choice.description;
}

TEST(GemmChoice, TrainsAlikeByEveryLibrary) {
    const spec::Gpt2 gpt2{.vocab_size = kVocabulary,
                          .padded_vocab_size = 32,
                          .max_positions = 9,
                          .d_model = 12,
                          .num_heads = 3,
                          .num_layers = 2,
                          .d_ff = 20,
                          .tie_embeddings = true};
    const spec::Llama llama{.vocab_size = kVocabulary,
                            .padded_vocab_size = 32,
                            .max_positions = 9,
                            .d_model = 12,
                            .num_heads = 6,
                            .num_kv_heads = 3,
                            .head_size = 2,
                            .num_layers = 2,
                            .d_ff = 20};
    for (const auto& model : {model::make_simple_transformer(small_model()), model::make_gpt2(gpt2),
                              model::make_llama(llama)}) {
        const auto train = [&](Gemm library, const fullshard::testing::Sharding& sharding) {
            return run_training(world(), model, kVocabulary,
                                {.sharding = sharding, .micro_batches = 2, .gemm = library},
                                /*steps=*/5);
        };
        const TrainingOutcome expected = train(Gemm::kLibTorch, unsharded());
        for (const Gemm library : libraries()) {
            const TrainingOutcome outcome = train(library, unsharded());
            EXPECT_TRUE(train(library, full_shard(config::Store::kSlotted)) == outcome);
            ASSERT_EQ(outcome.losses.size(), expected.losses.size());
            expect_close(outcome, expected, model->spec().family);
        }
    }
}

}  // namespace
}  // namespace fullshard::train
