// https://github.com/karpathy/nanoGPT/issues/464 (a utilisation of 104 % of the wrong peak) and
// https://github.com/PrimeIntellect-ai/prime-rl/issues/20 (337 %: not divided by the devices).
#include "train/throughput.h"

#include "spec/simple_transformer.h"
#include "train/assemble.h"

#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

Peak peak_of(double gflops) {
    return {.mean = gflops * 1e9, .slowest = gflops * 1e9, .origin = "run.peak_gflops"};
}

config::Deck small_deck() {
    config::Deck deck;
    deck.model.vocab_size = 1000;
    deck.model.d_model = 64;
    deck.model.num_layers = 3;
    deck.model.d_ff = 256;
    deck.data.sequence = 128;
    return deck;
}

spec::ModelSpec spec_of(const config::Deck& deck) {
    return spec::describe(model_of(deck.model, deck.data));
}

TEST(Throughput, UtilisationIsThatOfOneRank) {
    // N = 3 layers x (4 d^2 + 2 d d_ff) + d V weights in products, L = 3, C = 64, T = 128:
    // 6 N + 12 L C T FLOP for each of 2000 tokens a second on 4 ranks of 5 GFLOP/s.
    const config::Deck deck = small_deck();
    const double n = 3.0 * (4 * 64 * 64 + 2 * 64 * 256) + 64.0 * 1000;
    const double flops_per_token = 6.0 * n + 12.0 * 3 * 64 * 128;
    EXPECT_EQ(model_flops_per_token(deck, spec_of(deck)), flops_per_token);
    const Throughput speed = throughput_of(20000, 10.0, 4, flops_per_token, peak_of(5));
    EXPECT_DOUBLE_EQ(speed.tokens_per_s, 2000.0);
    EXPECT_DOUBLE_EQ(speed.tokens_per_s_of_rank, 500.0);
    EXPECT_DOUBLE_EQ(*speed.flops_per_s_of_rank, 500.0 * flops_per_token);
    EXPECT_DOUBLE_EQ(*speed.mfu, 500.0 * flops_per_token / 5e9);
    EXPECT_TRUE(speed.mfu_text.starts_with("MFU 15.6 %: ")) << speed.mfu_text;
    EXPECT_NE(speed.mfu_text.find("over a peak of 5 GFLOP/s (run.peak_gflops)"), std::string::npos)
        << speed.mfu_text;
}

TEST(Throughput, MoreThanThePeakIsAWarningAndNoNumber) {
    const Throughput speed = throughput_of(1000, 1.0, 1, 1.04e6, peak_of(1));
    EXPECT_FALSE(speed.mfu.has_value());
    EXPECT_TRUE(speed.peak_too_low);
    EXPECT_NE(speed.mfu_text.find("would be 104.0 %; the peak is too low"), std::string::npos)
        << speed.mfu_text;
}

TEST(Throughput, AnUnknownPeakIsSaidWithItsRemedy) {
    const Throughput speed = throughput_of(1000, 1.0, 2, 1e6, {});
    EXPECT_FALSE(speed.mfu.has_value());
    EXPECT_FALSE(speed.peak_too_low);
    EXPECT_EQ(speed.flops_per_s_of_rank, 500.0 * 1e6);
    EXPECT_EQ(speed.mfu_text,
              "no MFU: the peak is unknown; set run.peak_gflops, or run.measure_peak = on");
}

TEST(Throughput, NobodyCountsFrozenPartsOrOtherModels) {
    config::Deck deck = small_deck();
    spec::ModelSpec frozen = spec_of(deck);
    frozen.stages[1].parameters[0].trainable = false;
    EXPECT_FALSE(model_flops_per_token(deck, frozen).has_value());
    deck.model.family = config::Family::kCustom;
    EXPECT_FALSE(model_flops_per_token(deck, spec_of(deck)).has_value());
    const Throughput speed = throughput_of(1000, 1.0, 2, std::nullopt, peak_of(5));
    EXPECT_FALSE(speed.flops_per_s_of_rank.has_value());
    EXPECT_FALSE(speed.mfu.has_value());
}

TEST(Throughput, ARunWithoutStepsHasNoSpeed) {
    const Throughput speed = throughput_of(0, 0.0, 2, 1e6, peak_of(5));
    EXPECT_EQ(speed.tokens_per_s, 0.0);
    EXPECT_EQ(*speed.mfu, 0.0);
}

}  // namespace
}  // namespace fullshard::train
