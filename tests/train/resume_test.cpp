#include "train/resume.h"

#include "base/error.h"
#include "config/parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fullshard::train {
namespace {

/// What check_resumable() notes about a run that goes on with other words on its command line.
std::vector<std::string> notes(const std::vector<std::string>& words,
                               const std::string& deck_text = "") {
    return check_resumable(config::parse(deck_text, "text.ini", {}),
                           config::parse(deck_text, "text.ini", words));
}

TEST(Resume, SameDeckHasNothingToNote) {
    EXPECT_TRUE(notes({}).empty());
}

TEST(Resume, OtherPrecisionGivesOtherNumbers) {
    const auto list = notes({"--precision.param", "bf16", "--optimizer.clip_norm", "1"});
    ASSERT_EQ(list.size(), 2u);
    EXPECT_EQ(list[0], "optimizer.clip_norm was 0 and is 1");
    EXPECT_EQ(list[1], "precision.param was fp32 and is bf16");
}

// The promise of equal bits across strategies holds for the tree only.
TEST(Resume, ShardingMattersUnderFastOnly) {
    const std::vector<std::string> words = {"--shard.strategy",
                                            "shard_grad_op",
                                            "--shard.wrap_policy",
                                            "model",
                                            "--shard.slots",
                                            "3",
                                            "--train.grad_accum_steps",
                                            "2"};
    EXPECT_TRUE(notes(words).empty());
    EXPECT_EQ(notes(words, "[reduce]\norder = fast\n").size(), 4u);
}

TEST(Resume, WhatNeverMattersIsNotNoted) {
    EXPECT_TRUE(notes({"--train.activation_checkpointing", "1", "--train.on_nonfinite", "skip",
                       "--shard.prefetch", "off"})
                    .empty());
}

TEST(Resume, AnotherModelIsRefused) {
    EXPECT_THROW(notes({"--model.tie_embeddings", "on"}), UsageError);
    EXPECT_THROW(notes({"--run.seed", "9"}), UsageError);
    EXPECT_THROW(notes({"--train.global_batch", "8"}), UsageError);
}

TEST(Resume, AnotherModelIsNotedWhereTensorsNeedNotFit) {
    EXPECT_EQ(notes({"--model.num_layers", "5", "--checkpoint.load_strict", "off"}).size(), 1u);
    EXPECT_THROW(notes({"--run.seed", "9", "--checkpoint.load_strict", "off"}), UsageError);
}

TEST(Resume, ChangedGroupsGiveOtherNumbers) {
    EXPECT_FALSE(notes({"--optimizer.group.biases.lr", "0.5"},
                       "[optimizer.group.biases]\nparameters = *.bias\n")
                     .empty());
}

}  // namespace
}  // namespace fullshard::train
