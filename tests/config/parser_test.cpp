#include "config/parser.h"

#include "config/deck.h"
#include "support.h"

#include <gtest/gtest.h>

namespace fullshard::config {
namespace {

TEST(Parse, EmptyDeckGivesDefaults) {
    EXPECT_EQ(parsed(""), Deck{});
}

TEST(Parse, CommandLineWinsOverDeckAndItsLastWordOverTheRest) {
    const Deck deck = parsed("[train]\nsteps = 1\nlog_every = 5\n",
                             {"--train.steps", "2", "--run.seed=9", "--train.steps=3"});
    EXPECT_EQ(deck.train.steps, 3);
    EXPECT_EQ(deck.train.log_every, 5);
    EXPECT_EQ(deck.run.seed, 9u);
    EXPECT_EQ(origin_of(deck, "train.steps"), "command line");
    EXPECT_EQ(origin_of(deck, "train.log_every"), "t.ini:3");
    EXPECT_EQ(origin_of(deck, "run.dir"), "default");
}

TEST(Parse, BooleanSpellings) {
    for (const char* yes : {"true", "on", "yes", "1"}) {
        EXPECT_TRUE(parsed("", {"--model.norm_first", yes}).model.norm_first) << yes;
    }
    for (const char* no : {"false", "off", "no", "0"}) {
        EXPECT_FALSE(parsed("", {"--comm.node_shared", no}).comm.node_shared) << no;
    }
    EXPECT_TRUE(contains(error_of("", {"--model.norm_first", "maybe"}), "not a boolean"));
}

TEST(Parse, IntegersAreNotGuessed) {
    const auto error = [](const char* value) { return error_of("", {"--train.steps", value}); };
    EXPECT_TRUE(contains(error("10x"), "--list-keys"));
    for (const char* junk :
         {"10x", "10 20", "0x10", "1_000", "1,000", "ten", "", "1.5", " 3", "+3"}) {
        EXPECT_TRUE(contains(error(junk), "not an integer")) << junk;
    }
    EXPECT_TRUE(contains(error("1e3"), "write 1000"));
    EXPECT_TRUE(contains(error("12.0"), "write 12"));
    EXPECT_TRUE(
        contains(error("0"),
                 "out of range (integer; allowed: 1 <= x <= 1000000000000); the nearest allowed "
                 "value is 1"));
    EXPECT_TRUE(contains(error("99999999999999999999"), "out of range"));
}

TEST(Parse, RealsAreWholeAndFinite) {
    const auto error = [](const char* value) { return error_of("", {"--optimizer.lr", value}); };
    for (const char* junk : {"1e-3x", "nan", "inf", "-inf", "", "1e", "0,1"}) {
        EXPECT_TRUE(contains(error(junk), "not a finite number")) << junk;
    }
    EXPECT_TRUE(contains(error("-1"), "out of range"));
    EXPECT_TRUE(contains(error("1e999"), "out of range"));
    EXPECT_EQ(parsed("", {"--optimizer.lr", "1"}).optimizer.lr, 1.0);
    EXPECT_EQ(parsed("", {"--optimizer.lr", "3e-4"}).optimizer.lr, 3e-4);
}

TEST(Parse, ChoicesOfferTheNearest) {
    const std::string error = error_of("[schedule]\nkind = cosin\n");
    EXPECT_TRUE(contains(error,
                         "t.ini:2: schedule.kind = cosin: not a choice (choice; allowed: "
                         "constant, linear, cosine); did you mean cosine?"))
        << error;
}

TEST(Parse, PathsThatNoDeckCanHoldAreRefused) {
    EXPECT_TRUE(contains(error_of("", {"--data.path", "a#b"}), "no deck can hold"));
    EXPECT_TRUE(contains(error_of("", {"--data.path", "a\nb"}), "no deck can hold"));
    EXPECT_TRUE(contains(error_of("[run]\ndir =\n"), "is empty"));
}

TEST(Parse, KeysAreNotAbbreviated) {
    EXPECT_TRUE(contains(error_of("", {"--train.step", "3"}), "did you mean train.steps?"));
    EXPECT_TRUE(contains(error_of("", {"--Train.steps", "3"}), "unknown key"));
}

TEST(Parse, UnknownKeysWithoutNeighbourListWhatExists) {
    EXPECT_TRUE(
        contains(error_of("[reduce]\nalgorithm = x\n"), "[reduce] has order, accumulation"));
    EXPECT_TRUE(contains(error_of("[profiler]\ninterval = 3\n"), "sections are run, model, data,"));
}

TEST(Parse, AKeyTwiceInOneDeck) {
    const std::string error = error_of("[train]\nsteps = 1\n[run]\nseed = 1\n[train]\nsteps = 2\n");
    EXPECT_TRUE(contains(error,
                         "t.ini:6: train.steps = 2: set twice in this deck; keep this line or "
                         "t.ini:2"))
        << error;
}

// The whole message: mistakes of the deck by line, of the command line, and contradictions.
TEST(Parse, AllMistakesAtOnce) {
    const std::string error = error_of(
        "[model]\n"
        "d_modle = 128\n"
        "num_heads = 3\n"
        "what is this\n"
        "[train]\n"
        "steps = 1e3\n"
        "log_every = 0\n",
        {"--optimizer.lr", "fast", "stray", "--data.source=text", "--run.seed"});
    EXPECT_EQ(
        error,
        "9 mistakes in the input:\n"
        "  t.ini:2: model.d_modle = 128: unknown key; did you mean model.d_model?\n"
        "  t.ini:4: what is this: neither [section] nor key = value; complete the line, or start "
        "it with # to make it a comment\n"
        "  t.ini:6: train.steps = 1e3: not an integer (integer; allowed: 1 <= x <= 1000000000000); "
        "write 1000\n"
        "  t.ini:7: train.log_every = 0: out of range (integer; allowed: 1 <= x <= 1000000000000); "
        "the nearest "
        "allowed value is 1\n"
        "  command line: stray: belongs to no key; write --section.key value or "
        "--section.key=value\n"
        "  command line: --run.seed: no value; write --run.seed value\n"
        "  command line: optimizer.lr = fast: not a finite number (real; allowed: x >= 0); write "
        "it as 0.001 or 1e-3, without unit\n"
        "  contradiction: model.d_model = 256 (default), model.num_heads = 3 (t.ini:3): the heads "
        "cannot "
        "share d_model equally; set model.num_heads = 2 or model.d_model = 258\n"
        "  contradiction: data.source = text (command line), data.path = nothing (default): tokens "
        "of this kind are read from files; set data.path, or data.source = synthetic\n"
        "fullshard --list-keys prints every key with type, range and meaning");
}

TEST(Parse, PowersOfTwo) {
    const auto error = [](const char* value) {
        return error_of("", {"--precision.initial_scale", value});
    };
    EXPECT_TRUE(contains(error("1000"), "not a power of two")) << error("1000");
    EXPECT_TRUE(contains(error("1000"), "write 512 or 1024")) << error("1000");
    EXPECT_TRUE(contains(error("0"), "out of range"));
    EXPECT_TRUE(contains(error("-2"), "out of range"));
    EXPECT_TRUE(contains(error("1e300"), "the nearest allowed value is 4294967296"));
    EXPECT_TRUE(contains(error("2^16"), "not a finite number"));
    EXPECT_EQ(parsed("", {"--precision.initial_scale", "4294967296"}).precision.initial_scale,
              0x1p32);
    EXPECT_EQ(parsed("", {"--precision.min_scale", "0.25"}).precision.min_scale, 0.25);
    EXPECT_EQ(parsed("", {"--precision.loss_scale", "0"}).precision.loss_scale, 0.0);
    EXPECT_TRUE(contains(error_of("", {"--precision.loss_scale", "3"}), "write 2 or 4"));
}

TEST(Parse, ReshardAfterForward) {
    using Kind = ReshardAfterForward::Kind;
    const auto value = [](const char* text) {
        return parsed("", {"--shard.reshard_after_forward", text}).shard.reshard_after_forward;
    };
    EXPECT_EQ(value("auto"), ReshardAfterForward{});
    EXPECT_EQ(value("on"), (ReshardAfterForward{Kind::kYes}));
    EXPECT_EQ(value("true"), (ReshardAfterForward{Kind::kYes}));
    EXPECT_EQ(value("off"), (ReshardAfterForward{Kind::kNo}));
    EXPECT_EQ(value("8"), (ReshardAfterForward{Kind::kGroup, 8}));
    // As numbers of ranks these would be legal elsewhere, as booleans too: too easily confused.
    for (const char* refused : {"0", "1", "-2"}) {
        EXPECT_TRUE(contains(error_of("", {"--shard.reshard_after_forward", refused}),
                             "write off to keep them whole, on to give them up"))
            << refused;
    }
    EXPECT_TRUE(contains(error_of("", {"--shard.reshard_after_forward", "node"}),
                         "write auto, on, off, or a whole number"));
}

TEST(Parse, ListsOfFiles) {
    const auto path = [](const char* text) {
        return parsed("[model]\nfamily = torchscript\npath = " + std::string(text)).model.path;
    };
    EXPECT_EQ(path("a.pt"), (std::vector<std::filesystem::path>{"a.pt"}));
    EXPECT_EQ(path("a b/c.pt ,d.pt,  e"),
              (std::vector<std::filesystem::path>{"a b/c.pt", "d.pt", "e"}));
    EXPECT_EQ(path("\"a.pt, b.pt\""), (std::vector<std::filesystem::path>{"a.pt", "b.pt"}));
    const auto error = [](const char* text) { return error_of("", {"--model.path", text}); };
    for (const char* hole : {"a,,b", "a,", ",", ",a", "a, ,b"}) {
        EXPECT_TRUE(contains(error(hole), "nothing before or after a comma")) << hole;
    }
    EXPECT_TRUE(contains(error("'a', 'b'"), "quotes inside a list"));
    EXPECT_TRUE(contains(error("a, b#c"), "no deck can hold"));
}

TEST(Parse, ADecksNameCannotBreakTheEffectiveDeck) {
    const Deck deck = parse("[run]\nseed = 2\n", "a\nb.ini", {});
    EXPECT_EQ(origin_of(deck, "run.seed"), "a?b.ini:2");
}

}  // namespace
}  // namespace fullshard::config
