#include "config/nearest.h"

#include "config/key_table.h"

#include <gtest/gtest.h>

namespace fullshard::config {
namespace {

TEST(EditDistance, KnownAnswers) {
    EXPECT_EQ(edit_distance("", ""), 0u);
    EXPECT_EQ(edit_distance("", "abc"), 3u);
    EXPECT_EQ(edit_distance("abc", ""), 3u);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
    EXPECT_EQ(edit_distance("saturday", "sunday"), 3u);
    EXPECT_EQ(edit_distance("steps", "stesp"), 1u);
    // Optimal string alignment edits no substring twice; without that restriction this is 2.
    EXPECT_EQ(edit_distance("ca", "abc"), 3u);
}

TEST(NearestKey, TypingMistakes) {
    const auto names = key_names();
    EXPECT_EQ(nearest_key("model.d_modle", names), "model.d_model");
    EXPECT_EQ(nearest_key("modl.d_model", names), "model.d_model");
    EXPECT_EQ(nearest_key("train.micro-batch", names), "train.micro_batch");
    EXPECT_EQ(nearest_key("optimiser.lr", names), "optimizer.lr");
}

TEST(NearestKey, WrongOrMissingSection) {
    const auto names = key_names();
    EXPECT_EQ(nearest_key("lr", names), "optimizer.lr");
    EXPECT_EQ(nearest_key("train.lr", names), "optimizer.lr");
    EXPECT_EQ(nearest_key("optimizer.frozen", names), "optimizer.group.NAME.frozen");
}

TEST(NearestKey, ATypingMistakeIsLikelierThanTheWrongSection) {
    EXPECT_EQ(nearest_key("optimizer.gruop.NAME.lr", key_names()), "optimizer.group.NAME.lr");
}

TEST(NearestKey, NothingNear) {
    EXPECT_EQ(nearest_key("checkpoint.interval", key_names()), "");
    EXPECT_EQ(nearest_key("x", key_names()), "");
}

}  // namespace
}  // namespace fullshard::config
