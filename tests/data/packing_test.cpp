// Windows of documents: packing, document mask, loss mask, split.
#include "base/error.h"
#include "base/rng.h"
#include "data/toy_source.h"
#include "data/windows.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;
constexpr std::int64_t kNone = kIgnoredTarget;

struct Window {
    Tokens tokens, targets, positions, documents;
    bool operator==(const Window&) const = default;
};

Window read(const Windows& windows, std::int64_t index) {
    const Tokens empty(static_cast<std::size_t>(windows.sequence()), -99);
    Window window{empty, empty, empty, empty};
    const auto valid = windows.read(index, window.tokens, window.targets);
    windows.read_documents(index, window.positions, window.documents);
    EXPECT_EQ(valid, std::ranges::count_if(window.targets, [](auto t) { return t >= 0; }));
    EXPECT_EQ(valid, windows.valid_targets(index));
    return window;
}

Windows cut(std::shared_ptr<const TokenSource> source, std::int64_t sequence, Packing packing,
            bool document_mask) {
    const TokenRange all{0, source->size()};
    return {std::move(source), all, sequence,
            Cutting{.packing = packing, .document_mask = document_mask}};
}

TEST(Packing, StreamWithDocumentMask) {
    // Documents [10 11 12] [13] [14 .. 19]; windows of four.
    const auto windows = cut(toy_documents({3, 1, 6}, 10), 4, Packing::kStream, true);
    ASSERT_EQ(windows.count(), 3);
    EXPECT_EQ(read(windows, 0),
              (Window{{10, 11, 12, 13}, {11, 12, kNone, kNone}, {0, 1, 2, 0}, {0, 0, 0, 1}}));
    EXPECT_EQ(read(windows, 1),
              (Window{{14, 15, 16, 17}, {15, 16, 17, 18}, {0, 1, 2, 3}, {0, 0, 0, 0}}));
    EXPECT_EQ(read(windows, 2), (Window{{18, 19, 0, 0},
                                        {19, kNone, kNone, kNone},
                                        {0, 1, 0, 1},  // the document goes on, its count does not
                                        {0, 0, 1, 1}}));
    EXPECT_EQ(windows.total_valid_targets(), 7);
}

TEST(Packing, WholeDocumentsAsManyAsFit) {
    const auto source = toy_documents({2, 2, 3, 5, 2}, 10);
    const auto windows = cut(source, 4, Packing::kDocuments, true);
    ASSERT_EQ(windows.count(), 4);
    EXPECT_EQ(read(windows, 0).tokens, (Tokens{10, 11, 12, 13}));
    EXPECT_EQ(read(windows, 0).targets, (Tokens{11, kNone, 13, kNone}));
    EXPECT_EQ(read(windows, 0).documents, (Tokens{0, 0, 1, 1}));
    EXPECT_EQ(read(windows, 1).tokens, (Tokens{14, 15, 16, 0}));
    EXPECT_EQ(read(windows, 1).documents, (Tokens{0, 0, 0, 1}));
    // Five tokens: one full window, and a last token that is its target only.
    EXPECT_EQ(read(windows, 2).tokens, (Tokens{17, 18, 19, 20}));
    EXPECT_EQ(read(windows, 2).targets, (Tokens{18, 19, 20, 21}));
    EXPECT_EQ(read(windows, 3).tokens, (Tokens{22, 23, 0, 0}));
    EXPECT_EQ(read(cut(source, 4, Packing::kDocuments, false), 0).targets,
              (Tokens{11, 12, 13, kNone}))
        << "without mask they are one text, which ends with the window";
}

TEST(Packing, EachDocumentInAWindowOfItsOwn) {
    const auto windows = cut(toy_documents({2, 1, 6, 4}, 10), 4, Packing::kNone, false);
    ASSERT_EQ(windows.count(), 4);  // a document of one token predicts nothing
    EXPECT_EQ(read(windows, 0).tokens, (Tokens{10, 11, 0, 0}));
    EXPECT_EQ(read(windows, 0).targets, (Tokens{11, kNone, kNone, kNone}));
    EXPECT_EQ(read(windows, 1).targets, (Tokens{14, 15, 16, 17}));
    EXPECT_EQ(read(windows, 2).tokens, (Tokens{17, 18, 0, 0}));
    EXPECT_EQ(read(windows, 3).targets, (Tokens{20, 21, 22, kNone}));
}

TEST(Packing, LossMaskTakesTargetsOut) {
    auto source = toy_documents({4, 4}, 10);
    source->loss_mask = {0, 0, 1, 1, 1, 0, 0, 1};
    const auto stream = cut(source, 4, Packing::kStream, false);
    EXPECT_EQ(read(stream, 0).targets, (Tokens{kNone, 12, 13, 14}));
    EXPECT_EQ(read(stream, 1).targets, (Tokens{kNone, kNone, 17, kNone}));
    EXPECT_EQ(stream.total_valid_targets(), 4);
    EXPECT_FALSE(stream.uniform());
    const auto masked = cut(source, 4, Packing::kStream, true);
    EXPECT_EQ(read(masked, 0).targets, (Tokens{kNone, 12, 13, kNone}));
    const Windows rolled(source, {0, 8}, 4, TargetRule::kRolled);
    EXPECT_EQ(read(rolled, 0).targets, (Tokens{kNone, 12, 13, kNone}));
    EXPECT_EQ(read(rolled, 1).targets, (Tokens{kNone, kNone, 17, 14}));
}

TEST(Packing, WindowsWithoutValidTargetAreLeftOut) {
    auto source = toy_documents({3, 3, 3}, 10);
    source->loss_mask = {0, 0, 1, 1, 0, 0, 0, 1, 1};  // the second counts its first token only
    const auto windows = cut(source, 4, Packing::kNone, false);
    ASSERT_EQ(windows.count(), 2);
    EXPECT_EQ(read(windows, 1).tokens, (Tokens{16, 17, 18, 0}));
    source = toy_documents({3, 3});
    source->loss_mask.assign(6, 0);
    for (const auto packing : {Packing::kStream, Packing::kDocuments, Packing::kNone})
        EXPECT_THROW(cut(source, 4, packing, false), DataError);
    EXPECT_THROW(cut(toy_documents({1, 1, 1}), 4, Packing::kStream, true), DataError);
}

/// Random lengths, many of them 1, a window's length, or next to it.
Tokens random_lengths(std::uint64_t seed, std::int64_t sequence) {
    const RandomStream random(seed);
    Tokens lengths;
    for (std::uint64_t i = 0; i < 1 + random.below(0, 20); ++i) {
        const auto bound = static_cast<std::uint64_t>(2 * sequence + 2);
        lengths.push_back(1 + static_cast<std::int64_t>(random.below(i + 1, bound)));
    }
    return lengths;
}

/// (input token, target token) of all valid positions.
std::multiset<std::pair<std::int64_t, std::int64_t>> pairs_in(const Windows& windows) {
    std::multiset<std::pair<std::int64_t, std::int64_t>> pairs;
    for (std::int64_t i = 0; i < windows.count(); ++i) {
        const Window window = read(windows, i);
        for (std::size_t t = 0; t < window.tokens.size(); ++t)
            if (window.targets[t] >= 0) pairs.emplace(window.tokens[t], window.targets[t]);
    }
    return pairs;
}

TEST(Packing, UnderADocumentMaskEveryTokenButADocumentsFirstIsATargetOnce) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const std::int64_t sequence = 1 + static_cast<std::int64_t>(seed % 7);
        Tokens lengths = random_lengths(seed, sequence);
        lengths.push_back(3);  // something to predict
        const auto source = toy_documents(lengths);
        std::multiset<std::pair<std::int64_t, std::int64_t>> expected;
        for (std::int64_t token = 1; token < source->size(); ++token)
            if (!std::ranges::binary_search(source->starts, token))
                expected.emplace(token - 1, token);
        for (const auto packing : {Packing::kStream, Packing::kDocuments, Packing::kNone}) {
            const auto windows = cut(source, sequence, packing, true);
            EXPECT_EQ(pairs_in(windows), expected) << seed;
            EXPECT_EQ(windows.total_valid_targets(), std::ssize(expected));
        }
    }
}

TEST(Packing, OnlyDocumentsLongerThanAWindowAreCutAndNoneWouldHaveFittedBefore) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const std::int64_t sequence = 2 + static_cast<std::int64_t>(seed % 7);
        Tokens lengths = random_lengths(seed, sequence);
        lengths.push_back(2);
        const auto source = toy_documents(lengths);
        const auto windows = cut(source, sequence, Packing::kDocuments, true);
        std::map<std::int64_t, std::set<std::int64_t>> windows_of;  // by document
        std::int64_t used_before = sequence;
        for (std::int64_t i = 0; i < windows.count(); ++i) {
            const Window window = read(windows, i);
            // Padding repeats token 0: what follows a larger token is no document.
            std::int64_t used = 0;
            for (std::size_t t = 0; t < window.tokens.size(); ++t) {
                const auto token = window.tokens[t];
                if (t > 0 && token != window.tokens[t - 1] + 1) break;
                ++used;
                const auto next = std::ranges::upper_bound(source->starts, token);
                const auto document = next - source->starts.begin() - 1;
                windows_of[document].insert(i);
                if (lengths[static_cast<std::size_t>(document)] <= sequence) {
                    EXPECT_EQ(window.positions[t], token - *(next - 1));
                }
            }
            const auto first = std::ranges::upper_bound(source->starts, window.tokens.front()) -
                               source->starts.begin() - 1;
            const std::int64_t length = lengths[static_cast<std::size_t>(first)];
            if (length <= sequence) {
                EXPECT_GT(used_before + length, sequence) << seed;
            }
            used_before = used;
        }
        for (const auto& [document, of] : windows_of) {
            if (lengths[static_cast<std::size_t>(document)] <= sequence) {
                EXPECT_EQ(of.size(), 1U) << seed;
            }
        }
    }
}

TEST(Packing, PartsOfASourceKeepToTheirRange) {
    const auto source = toy_documents({4, 4, 4});
    const Cutting cutting{.packing = Packing::kDocuments, .document_mask = true};
    const Windows first(source, {0, 4}, 8, cutting), rest(source, {4, 8}, 8, cutting);
    EXPECT_EQ(first.count(), 1);
    EXPECT_EQ(read(first, 0).tokens, (Tokens{0, 1, 2, 3, 0, 0, 0, 0}));
    EXPECT_EQ(read(rest, 0).tokens, (Tokens{4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(read(rest, 0).documents, (Tokens{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(Packing, TheFirstWindowsOnly) {
    const auto packed = cut(toy_documents({4, 4, 4}), 4, Packing::kNone, true);
    EXPECT_EQ(packed.head(2).count(), 2);
    EXPECT_EQ(packed.head(2).total_valid_targets(), 6);
    EXPECT_EQ(packed.head(9).count(), 3);
    const Windows stream(toy_documents({11}), {0, 11}, 4, TargetRule::kNext);
    const Windows head = stream.head(2);
    EXPECT_EQ(head.range(), (TokenRange{0, 8}));
    EXPECT_EQ(read(head, 1).targets, (Tokens{5, 6, 7, kNone})) << "nothing from behind them";
    EXPECT_EQ(stream.head(3).range().count, 11);
}

TEST(Packing, RolledTargetsKnowNoDocuments) {
    const auto source = toy_documents({4, 4});
    for (const auto& cutting :
         {Cutting{.targets = TargetRule::kRolled, .document_mask = true},
          Cutting{.targets = TargetRule::kRolled, .packing = Packing::kNone},
          Cutting{.targets = TargetRule::kRolled, .packing = Packing::kDocuments}})
        EXPECT_THROW(Windows(source, {0, 8}, 4, cutting), UsageError);
}

TEST(SplitOfDocuments, HoldsOutWholeOnesNearestToTheFraction) {
    // Starts 0, 10, 30, 35, 80.
    const auto source = toy_documents({10, 20, 5, 45, 20});
    EXPECT_EQ(split(*source, 8, 0.1).validation, (TokenRange{80, 20}));
    EXPECT_EQ(split(*source, 8, 0.2).validation, (TokenRange{80, 20}));
    EXPECT_EQ(split(*source, 8, 0.5).validation, (TokenRange{35, 65}));
    EXPECT_EQ(split(*source, 8, 0.68).validation, (TokenRange{30, 70}));
    EXPECT_EQ(split(*source, 8, 0.99).validation, (TokenRange{10, 90}));
    EXPECT_EQ(split(*source, 8, 0.68).training, (TokenRange{0, 30}));
    EXPECT_EQ(split(*source, 8, 0.0).training, (TokenRange{0, 100}));
    EXPECT_EQ(split(*toy_documents({3, 2}), 100, 0.5).validation, (TokenRange{3, 2}))
        << "shorter than a window";
    EXPECT_EQ(split(*toy_documents({100}), 10, 0.1).validation, (TokenRange{90, 10}))
        << "one document is cut like a stream";
}

TEST(WithDocuments, EndTokensAndFilesEndDocuments) {
    auto source = std::make_shared<ToySource>();
    source->tokens = {9, 1, 9, 9, 2, 3, 9};
    const auto delimited = with_documents(source, 9);
    const auto found = delimited->documents();
    EXPECT_EQ(Tokens(found.begin(), found.end()), (Tokens{0, 1, 3, 4}));
    EXPECT_EQ(with_documents(source, -1)->documents().size(), 1U);
    const auto own = toy_documents({2, 2});
    EXPECT_EQ(with_documents(own, 1), own) << "it knows better";
}

}  // namespace
}  // namespace fullshard::data
