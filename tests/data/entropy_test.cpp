#include "data/entropy.h"

#include "base/error.h"
#include "data/counting_source.h"
#include "data/synthetic_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;

TEST(UnigramEntropy, ClosedForms) {
    EXPECT_EQ(unigram_entropy(Tokens(50, 3), 10), 0.0);
    EXPECT_DOUBLE_EQ(unigram_entropy(Tokens{0, 1, 2, 3}, 256), std::log(4.0));
    // Probabilities 1/2, 1/4, 1/4: one and a half bits.
    EXPECT_DOUBLE_EQ(unigram_entropy(Tokens{7, 5, 7, 6}, 8), 1.5 * std::log(2.0));
    EXPECT_EQ(unigram_entropy(Tokens{}, 8), 0.0);
}

TEST(UnigramEntropy, OfAPartOfASource) {
    // Longer than the buffer that it reads through.
    EXPECT_NEAR(unigram_entropy(CountingSource(20'000), {5, 10'000}), std::log(10'000.0), 1e-9);
    const SyntheticSource source(1, 10, 1000, 17);
    Tokens tokens(10'000);
    source.read(0, tokens);
    EXPECT_DOUBLE_EQ(unigram_entropy(source, {0, 10'000}), unigram_entropy(tokens, 17));
}

TEST(CountTokens, CountsEachToken) {
    EXPECT_EQ(count_tokens(Tokens{2, 0, 2, 3, 2}, 5), (Tokens{1, 0, 3, 1, 0}));
    EXPECT_EQ(count_tokens(CountingSource(6), {2, 3}), (Tokens{0, 0, 1, 1, 1, 0}));
}

TEST(CountTokens, ATokenOutsideTheVocabularyIsADataErrorWithItsOffset) {
    try {
        count_tokens(Tokens{0, 1, 5}, 5);
        FAIL() << "no error";
    } catch (const DataError& error) {
        EXPECT_NE(std::string(error.what()).find("token 5 at offset 2"), std::string::npos);
    }
    EXPECT_THROW(count_tokens(Tokens{-1}, 5), DataError);
}

}  // namespace
}  // namespace fullshard::data
