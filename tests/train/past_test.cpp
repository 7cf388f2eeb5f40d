#include "train/past.h"

#include "base/error.h"
#include "config/batch.h"
#include "config/parser.h"
#include "config/render.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fullshard::train {
namespace {

const std::vector<std::string> kWords{"--train.steps", "10", "--run.dir", "mine"};
const std::string kElastic =
    "[elasticity]\nenabled = on\nmax_train_batch_size = 24\nmicro_batch_sizes = 2, 4\n";

config::Deck parsed(std::vector<std::string> more = {}, const std::string& text = "") {
    more.insert(more.begin(), kWords.begin(), kWords.end());
    return config::parse(text, "text.ini", more);
}

/// As a run on 4 ranks leaves it.
config::Deck before() {
    const config::Deck deck = parsed();
    return config::with_batch(deck, config::resolve_batch(deck, 4));
}

std::string error_of(const EarlierRun& earlier, const config::Deck& deck) {
    try {
        use_of_earlier_run(earlier, before(), deck);
    } catch (const UsageError& error) {
        return error.what();
    }
    return {};
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(EarlierRun, InterruptedOneOfTheSameDeckStartsAgain) {
    EXPECT_EQ(use_of_earlier_run({}, before(), parsed()), FolderUse::kStartAgain);
    // Allowed to differ between a run and its continuation.
    EXPECT_EQ(use_of_earlier_run({}, before(),
                                 parsed({"--optimizer.lr", "0.5", "--shard.strategy", "no_shard",
                                         "--train.steps", "20"})),
              FolderUse::kStartAgain);
}

TEST(EarlierRun, ElasticOneStartsAgainToo) {
    config::Deck earlier = parsed({}, kElastic);
    earlier.train.global_batch = 24;
    EXPECT_EQ(use_of_earlier_run({}, earlier, parsed({}, kElastic)), FolderUse::kStartAgain);
    EXPECT_THROW(use_of_earlier_run({}, before(), parsed({}, kElastic)), UsageError);
}

TEST(EarlierRun, FinishedOneIsLeftAlone) {
    const EarlierRun earlier{.finished_step = 10};
    EXPECT_EQ(use_of_earlier_run(earlier, before(), parsed()), FolderUse::kLeave);
    EXPECT_EQ(use_of_earlier_run(earlier, before(), parsed({"--train.steps", "9"})),
              FolderUse::kLeave);
    const std::string more = error_of(earlier, parsed({"--train.steps", "11"}));
    EXPECT_TRUE(contains(more, "run.dir = mine already holds a run that is finished after step 10"))
        << more;
    EXPECT_TRUE(contains(more, "run.overwrite = on")) << more;
}

TEST(EarlierRun, AnotherDeckIsRefusedWithWhatDiffers) {
    const std::string error = error_of(
        {}, parsed({"--model.d_ff", "64", "--run.seed", "7", "--train.global_batch", "8"}));
    EXPECT_TRUE(contains(error, "run.dir = mine already holds a run of another deck")) << error;
    EXPECT_TRUE(contains(error, "run.overwrite = on")) << error;
    EXPECT_TRUE(contains(error, "\n  run.seed was 1 and is 7")) << error;
    EXPECT_TRUE(contains(error, "\n  model.d_ff was 2048 and is 64")) << error;
    EXPECT_TRUE(contains(error, "\n  train.global_batch was 16 and is 8")) << error;
    EXPECT_FALSE(error_of({.finished_step = 10}, parsed({"--run.seed", "7"})).empty());
}

TEST(EarlierRun, LostCheckpointsAreNoFreshStart) {
    const std::string error = error_of({.had_checkpoint = true}, parsed());
    EXPECT_TRUE(contains(error, "whose checkpoints are gone")) << error;
}

TEST(CheckpointDeck, ImportedWeightsComeFromNoRun) {
    EXPECT_EQ(deck_of_checkpoint(checkpoint::Manifest{}), std::nullopt);
}

TEST(CheckpointDeck, ElasticOneHasTheBatchSizesOfItsRanks) {
    checkpoint::Manifest manifest;
    manifest.effective_deck = config::effective_deck(parsed({}, kElastic));
    manifest.writer.ranks = 3;
    const auto deck = deck_of_checkpoint(manifest);
    ASSERT_TRUE(deck);
    EXPECT_EQ(deck->train.micro_batch, 4);
    EXPECT_EQ(deck->train.grad_accum_steps, 2);
    EXPECT_EQ(deck->train.global_batch, 24);
}

}  // namespace
}  // namespace fullshard::train
