#include "train/sampling.h"

#include "base/error.h"
#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace fullshard::train {
namespace {

using Logits = std::vector<float>;

/// How often each token comes in many draws.
std::vector<double> shares(const Logits& logits, const Sampling& sampling) {
    constexpr std::uint64_t kDraws = 20'000;
    const RandomStream stream(5);
    std::vector<double> share(logits.size());
    for (std::uint64_t i = 0; i < kDraws; ++i) {
        const auto token = draw_token(logits, sampling, stream.uniform(i));
        share.at(static_cast<std::size_t>(token)) += 1.0 / kDraws;
    }
    return share;
}

void expect_shares(const Logits& logits, const Sampling& sampling,
                   const std::vector<double>& expected) {
    const std::vector<double> actual = shares(logits, sampling);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        // Five standard deviations of a binomial share: none for what is never drawn.
        EXPECT_NEAR(actual[i], expected[i], 5.0 * std::sqrt(expected[i] / 20'000.0)) << i;
    }
}

Logits logs(const std::vector<double>& probabilities) {
    Logits logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3.0));
    return logits;
}

TEST(Sampling, ZeroTemperatureTakesTheMostLikelyAndTheLowerOfEquals) {
    for (const double uniform : {0.0, 0.5, 0.999}) {
        EXPECT_EQ(draw_token(Logits{1, 7, -2, 7}, {.temperature = 0.0}, uniform), 1);
    }
}

TEST(Sampling, DrawsFromTheSoftmax) {
    expect_shares(logs({0.1, 0.6, 0.3}), {}, {0.1, 0.6, 0.3});
}

TEST(Sampling, TemperatureDividesLogits) {
    // Squares of the probabilities, made one again.
    expect_shares(logs({0.1, 0.6, 0.3}), {.temperature = 0.5},
                  {0.01 / 0.46, 0.36 / 0.46, 0.09 / 0.46});
}

TEST(Sampling, TopKLeavesTheMostLikely) {
    expect_shares(logs({0.1, 0.6, 0.3}), {.top_k = 2}, {0.0, 2.0 / 3.0, 1.0 / 3.0});
    expect_shares(logs({0.1, 0.6, 0.3}), {.top_k = 1}, {0.0, 1.0, 0.0});
    expect_shares(logs({0.1, 0.6, 0.3}), {.top_k = 9}, {0.1, 0.6, 0.3});
}

TEST(Sampling, TopPLeavesTheFewestThatHaveTheProbability) {
    expect_shares(logs({0.1, 0.6, 0.3}), {.top_p = 0.59}, {0.0, 1.0, 0.0});
    expect_shares(logs({0.1, 0.6, 0.3}), {.top_p = 0.61}, {0.0, 2.0 / 3.0, 1.0 / 3.0});
    expect_shares(logs({0.1, 0.6, 0.3}), {.top_p = 0.95}, {0.1, 0.6, 0.3});
}

TEST(Sampling, TopPComesAfterTopK) {
    // Of 0.4 and 0.3 the first has 0.57: enough for 0.55, though not of all.
    expect_shares(logs({0.4, 0.3, 0.3}), {.top_k = 2, .top_p = 0.55}, {1.0, 0.0, 0.0});
}

TEST(Sampling, MinusInfinityIsNeverDrawn) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    expect_shares({kNever, 0, kNever, 0}, {}, {0.0, 0.5, 0.0, 0.5});
    EXPECT_EQ(draw_token(Logits{0, kNever}, {}, std::nextafter(1.0, 0.0)), 0);
}

TEST(Sampling, LogitsThatAreNoNumbersAreRefused) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_THROW(draw_token(Logits{1, kNan}, {}, 0.5), RunError);
    EXPECT_THROW(draw_token(Logits{kNan, 1}, {.temperature = 0.0}, 0.5), RunError);
    EXPECT_THROW(draw_token(Logits{1, kInfinity}, {}, 0.5), RunError);
    EXPECT_THROW(draw_token(Logits{-kInfinity, -kInfinity}, {}, 0.5), RunError);
}

}  // namespace
}  // namespace fullshard::train
