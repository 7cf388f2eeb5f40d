#include "data/synthetic_source.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;

Tokens all_tokens(const TokenSource& source) {
    Tokens tokens(static_cast<std::size_t>(source.size()));
    source.read(0, tokens);
    return tokens;
}

TEST(SyntheticSource, IsAFunctionOfTheSeedAndReadsTheSameInPieces) {
    const SyntheticSource source(4, 100, 128, 1000);
    ASSERT_EQ(source.size(), 12'800);
    EXPECT_EQ(source.vocab_size(), 1000);
    const auto whole = all_tokens(source);
    EXPECT_EQ(all_tokens(SyntheticSource(4, 100, 128, 1000)), whole);
    EXPECT_NE(all_tokens(SyntheticSource(5, 100, 128, 1000)), whole);
    Tokens pieces(whole.size());
    for (std::size_t first = 0; first < pieces.size(); first += 100)
        source.read(static_cast<std::int64_t>(first), std::span(pieces).subspan(first, 100));
    EXPECT_EQ(pieces, whole);
}

TEST(SyntheticSource, TokensAreUniformOverTheVocabulary) {
    Tokens hits(10);
    for (const std::int64_t token : all_tokens(SyntheticSource(4, 1000, 50, 10)))
        ++hits.at(static_cast<std::size_t>(token));
    const double deviation = std::sqrt(50'000 * 0.1 * 0.9);
    for (const std::int64_t count : hits)
        EXPECT_NEAR(static_cast<double>(count), 5000.0, 5.0 * deviation);
}

TEST(SyntheticSource, LocatesTokensBySequence) {
    const SyntheticSource source(4, 10, 16, 50);
    EXPECT_EQ(source.locate(35), "synthetic sequence 2, token 3");
    EXPECT_NE(source.name().find("10 sequences of 16"), std::string::npos);
}

TEST(SyntheticSource, WrongArguments) {
    EXPECT_THROW(SyntheticSource(1, 0, 16, 50), UsageError);
    EXPECT_THROW(SyntheticSource(1, 10, 0, 50), UsageError);
    EXPECT_THROW(SyntheticSource(1, 10, 16, 0), UsageError);
    const SyntheticSource source(1, 2, 3, 50);
    Tokens tokens(4);
    EXPECT_THROW(source.read(3, tokens), LogicError);
    EXPECT_THROW(source.read(-1, tokens), LogicError);
}

}  // namespace
}  // namespace fullshard::data
