#include "train/kept_batch.h"

#include "base/error.h"
#include "config/parser.h"
#include "config/world_sizes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fullshard::train {
namespace {

using config::Batch;

config::Deck parsed(const std::string& train, const std::string& more = "") {
    return config::parse("[train]\n" + train + more, "text.ini", {});
}

const config::Deck kBefore = parsed("micro_batch = 2\ngrad_accum_steps = 3\nglobal_batch = 24\n");
const std::string kElastic =
    "[elasticity]\nenabled = on\nmax_train_batch_size = 24\nmicro_batch_sizes = 2, 4\n";

Batch resolved(const config::Deck& deck, std::int64_t ranks) {
    std::vector<std::string> notes;
    return resolve_kept_batch(deck, kBefore, ranks, notes);
}

std::string error_of(const config::Deck& deck, std::int64_t ranks) {
    try {
        resolved(deck, ranks);
    } catch (const UsageError& error) {
        return error.what();
    }
    return {};
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(KeptBatch, AccumulationFollowsTheNumberOfRanks) {
    for (const auto& [ranks, steps] : {std::pair{1, 12}, {2, 6}, {3, 4}, {4, 3}, {6, 2}, {12, 1}}) {
        EXPECT_EQ(resolved(parsed("micro_batch = 2\n"), ranks), (Batch{2, steps, 24}));
    }
}

TEST(KeptBatch, MicroBatchIsKeptUnlessTheDeckNamesOne) {
    EXPECT_EQ(resolved(parsed(""), 4), (Batch{2, 3, 24}));
    EXPECT_EQ(resolved(parsed("micro_batch = 6\n"), 4), (Batch{6, 1, 24}));
}

TEST(KeptBatch, AccumulationOfTheDeckGivesWayAndThatIsSaid) {
    const config::Deck deck = parsed("micro_batch = 2\ngrad_accum_steps = 3\n");
    std::vector<std::string> notes;
    EXPECT_EQ(resolve_kept_batch(deck, kBefore, 4, notes), (Batch{2, 3, 24}));
    EXPECT_TRUE(notes.empty());
    EXPECT_EQ(resolve_kept_batch(deck, kBefore, 2, notes), (Batch{2, 6, 24}));
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_TRUE(contains(notes[0], "train.grad_accum_steps = 3 gives way to 6")) << notes[0];
    EXPECT_TRUE(contains(notes[0], "2 ranks")) << notes[0];
}

TEST(KeptBatch, RanksThatCannotShareItAreToldWhichCan) {
    const std::string five = error_of(parsed("micro_batch = 2\n"), 5);
    EXPECT_TRUE(contains(five,
                         "a global batch of 24 sequences, which 5 ranks cannot share in "
                         "micro-batches of 2"))
        << five;
    EXPECT_TRUE(contains(five, "run on 1, 2, 3, 4, 6 or 12 ranks, or start")) << five;
    const std::string eight = error_of(parsed("micro_batch = 2\n"), 8);
    EXPECT_TRUE(contains(eight, "or 12 ranks, set train.micro_batch = 1, or")) << eight;
    const std::string never = error_of(parsed("micro_batch = 5\n"), 2);
    EXPECT_TRUE(contains(never, "(train.micro_batch); set train.micro_batch = 4, or")) << never;
}

TEST(KeptBatch, GlobalBatchOfTheDeckIsTakenAtItsWord) {
    EXPECT_EQ(resolved(parsed("micro_batch = 2\nglobal_batch = 30\n"), 5), (Batch{2, 3, 30}));
}

TEST(KeptBatch, ElasticBatchMustBeTheSame) {
    EXPECT_EQ(resolved(parsed("", kElastic), 3), (Batch{4, 2, 24}));
    const std::string error =
        error_of(parsed("",
                        "[elasticity]\nenabled = on\nmax_train_batch_size = 20\n"
                        "micro_batch_sizes = 2\n"),
                 2);
    EXPECT_TRUE(contains(error, "a global batch of 24 sequences and [elasticity] gives 12"))
        << error;
    EXPECT_TRUE(contains(error, "elasticity.enabled = off to keep 24")) << error;
}

TEST(KeptBatch, ValidWorldSizesAreThoseOfTheKeptBatch) {
    EXPECT_EQ(config::valid_world_sizes(with_kept_batch(parsed("micro_batch = 4\n"), kBefore)),
              (std::vector<std::int64_t>{1, 2, 3, 6}));
    EXPECT_EQ(config::valid_world_sizes(with_kept_batch(parsed("grad_accum_steps = 1\n"), kBefore)),
              (std::vector<std::int64_t>{1, 2, 3, 4, 6, 12}));
}

}  // namespace
}  // namespace fullshard::train
