#include "config/checks.h"

#include "support.h"

#include <gtest/gtest.h>

#include <functional>

namespace fullshard::config {
namespace {

TEST(Contradictions, DefaultsHaveNone) {
    EXPECT_TRUE(contradictions(Deck{}).empty());
    EXPECT_TRUE(warnings(Deck{}).empty());
}

TEST(Contradictions, EachIsFoundAloneWithItsKeys) {
    const std::vector<std::pair<std::function<void(Deck&)>, std::vector<std::string_view>>> cases{
        {[](Deck& d) { d.model.num_heads = 3; }, {"model.d_model", "model.num_heads"}},
        {[](Deck& d) { d.data.source = Source::kText; }, {"data.source", "data.path"}},
        {[](Deck& d) {
             d.data.targets = Targets::kRolled;
             d.data.sequence = 1;
         },
         {"data.targets", "data.sequence"}},
        {[](Deck& d) {
             d.train.eval_every = 10;
             d.data.validation_fraction = 0.0;
         },
         {"train.eval_every", "data.validation_fraction"}},
        {[](Deck& d) {
             d.train.micro_batch = 2;
             d.train.grad_accum_steps = 4;
             d.train.global_batch = 12;
         },
         {"train.global_batch", "train.micro_batch", "train.grad_accum_steps"}},
        {[](Deck& d) { d.schedule.warmup_steps = 101; }, {"schedule.warmup_steps", "train.steps"}},
        {[](Deck& d) {
             d.shard.store = Store::kResident;
             d.comm.node_shared = false;
         },
         {"shard.store", "comm.node_shared"}},
        {[](Deck& d) { d.fault.throw_at_step = 101; }, {"fault.throw_at_step", "train.steps"}},
    };
    for (const auto& [change, keys] : cases) {
        Deck deck;
        change(deck);
        const auto found = contradictions(deck);
        ASSERT_EQ(found.size(), 1u) << keys.front();
        EXPECT_EQ(found.front().keys, keys);
        EXPECT_FALSE(found.front().remedy.empty());
    }
}

TEST(Contradictions, RemedyForHeadsIsTrue) {
    const std::string error = error_of("[model]\nd_model = 256\nnum_heads = 7\n");
    EXPECT_TRUE(contains(error, "set model.num_heads = 8 or model.d_model = 259")) << error;
}

TEST(Contradictions, ShowValuesAndOrigins) {
    const std::string error = error_of("[schedule]\nwarmup_steps = 20\n", {"--train.steps", "5"});
    EXPECT_TRUE(contains(error,
                         "contradiction: schedule.warmup_steps = 20 (t.ini:2), train.steps = 5 "
                         "(command line): the warm-up would outlast the training; set "
                         "schedule.warmup_steps = 5 or less"))
        << error;
}

TEST(Contradictions, AreNotJudgedOnValuesThatWereRefused) {
    const std::string error = error_of("[model]\nd_model = 10x\nnum_heads = 7\n");
    EXPECT_TRUE(contains(error, "one mistake")) << error;
}

TEST(Warnings, BidirectionalAttentionReadsTheAnswer) {
    for (const Targets targets : {Targets::kNext, Targets::kRolled}) {
        Deck deck;
        deck.model.attention = Attention::kBidirectional;
        deck.data.targets = targets;
        ASSERT_EQ(warnings(deck).size(), 1u);
        EXPECT_TRUE(contains(warnings(deck).front(), "model.attention = bidirectional"));
    }
}

TEST(Warnings, RolledTargetsOnText) {
    Deck deck;
    deck.data.targets = Targets::kRolled;
    EXPECT_TRUE(warnings(deck).empty());
    deck.data.source = Source::kText;
    EXPECT_EQ(warnings(deck).size(), 1u);
}

TEST(Warnings, FaultsAreAnnounced) {
    const Deck deck = parsed("[fault]\nthrow_at_step = 3\nrank = 1\ndelay_us = 50\npoison = on\n");
    const auto lines = warnings(deck);
    ASSERT_EQ(lines.size(), 3u);
    for (const std::string& line : lines) EXPECT_TRUE(line.starts_with("FAULT INJECTION")) << line;
    EXPECT_TRUE(contains(lines[0], "rank 1 will throw in step 3"));
}

}  // namespace
}  // namespace fullshard::config
