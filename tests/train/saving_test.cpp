// The ways to save: through parallel HDF5 or in the background, to one file or one a node.
#include "base/error.h"
#include "comm/agree.h"
#include "train/checkpoint_case.h"

#include <atomic>
#include <memory>

namespace fullshard::train {
namespace {

using SavingTest = CheckpointTest;

TEST_F(SavingTest, EveryWayToSaveHoldsTheSame) {
    for (const Sharding& sharding : shardings(world().size())) {
        TrainingRig rig(world(), model(), {.sharding = sharding, .seed = kSeed});
        train_steps(rig, 1, 2);
        const Everything trained = read_everything(rig);
        for (const config::Checkpoint& way : ways_to_save()) {
            save(rig, {.step = 2, .optimizer_step = 2}, way);
            TrainingRig again(world(), model(), {.seed = kSeed + 1});
            checkpoints(again).restore(checkpoint::choose(world(), folder_));
            EXPECT_TRUE(read_everything(again) == trained)
                << sharding.name << (way.async ? ", async" : "");
            const auto manifest = checkpoint::open_folder(folder_ / checkpoint::folder_name(2));
            const bool nodes =
                way.files == config::CheckpointFiles::kNode && sharding.ranks_per_node == 2;
            EXPECT_EQ(manifest.files.size(), nodes ? 3u : 1u);
        }
    }
}

// pytorch/pytorch 144657: a save in the background that wrote what later steps had made of it.
TEST_F(SavingTest, SaveInTheBackgroundHoldsTheStateOfItsStep) {
    TrainingRig rig(world(), model(), {.seed = kSeed});
    train_steps(rig, 1, 2);
    const Everything then = read_everything(rig);
    // The thread waits until training has gone on.
    std::atomic<bool> trained = false;
    Checkpoints all({rig.world(), rig.replicas(), rig.layout(), rig.store(), rig.optimizer()},
                    saving_ranks({}, rig.sharded().topology()), folder_, {}, {.async = true},
                    [&](checkpoint::SaveStage stage) {
                        if (stage == checkpoint::SaveStage::kBeforeData) trained.wait(false);
                    });
    EXPECT_TRUE(all.save({.step = 2, .optimizer_step = 2}, false).empty());
    EXPECT_FALSE(all.poll());
    train_steps(rig, 3, 5);
    EXPECT_FALSE(fs::exists(folder_ / checkpoint::folder_name(2)));
    trained = true;
    trained.notify_all();
    EXPECT_EQ(all.drain()->step, 2);
    EXPECT_FALSE(all.drain());
    TrainingRig again(world(), model(), {.seed = kSeed + 1});
    checkpoints(again).restore(checkpoint::choose(world(), folder_));
    EXPECT_TRUE(read_everything(again) == then);
}

TEST_F(SavingTest, NextSaveWaitsForTheOneInTheBackgroundAndMemoryIsReused) {
    TrainingRig rig(world(), model(), {.seed = kSeed});
    Checkpoints all = checkpoints(rig, {.async = true});
    EXPECT_EQ(all.staging_bytes(), 0);
    std::vector<std::int64_t> steps;
    for (std::int64_t step = 1; step <= 5; ++step) {
        for (const SaveReport& report : all.save({.step = step}, step == 5)) {
            steps.push_back(report.step);
            EXPECT_LE(report.stall_s, report.seconds);
        }
        EXPECT_EQ(all.staging_bytes(), all.planned_staging_bytes());
    }
    EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
}

TEST_F(SavingTest, FailureOfOneRankIsReportedAlikeAndLeavesNothing) {
    for (const config::Checkpoint& way : ways_to_save()) {
        TrainingRig rig(world(), model(), {.seed = kSeed});
        save(rig, {.step = 1}, way);
        const bool fails = rig.world().rank() == rig.world().size() - 1;
        config::Checkpoint keys = way;
        Checkpoints all({rig.world(), rig.replicas(), rig.layout(), rig.store(), rig.optimizer()},
                        saving_ranks(keys.files, rig.sharded().topology()), folder_, {}, keys,
                        [fails](checkpoint::SaveStage stage) {
                            if (fails && stage == checkpoint::SaveStage::kDuringData) {
                                throw RunError("no space left");
                            }
                        });
        auto reports = all.save({.step = 2}, false);
        if (way.async) reports.push_back(all.drain().value());
        ASSERT_EQ(reports.size(), 1u);
        EXPECT_NE(reports[0].error.find("no space left"), std::string::npos) << reports[0].error;
        rig.world().barrier();
        EXPECT_FALSE(fs::exists(checkpoint::temporary_folder(folder_, 2)));
        EXPECT_EQ(checkpoint::find_latest(folder_).folder, folder_ / checkpoint::folder_name(1));
        rig.world().barrier();  // before the next attempt makes that folder again
        // The end of a run must not look well.
        EXPECT_THROW(all.save({.step = 2}, true), comm::AgreedError);
        rig.world().barrier();
    }
}

TEST_F(SavingTest, SaveThatDoesNotEndIsGivenUp) {
    TrainingRig rig(world(), model(), {.seed = kSeed});
    // Shared with the thread, which outlives everything here.
    auto released = std::make_shared<std::atomic<bool>>(false);
    {
        Checkpoints all({rig.world(), rig.replicas(), rig.layout(), rig.store(), rig.optimizer()},
                        saving_ranks({}, rig.sharded().topology()), folder_, {},
                        {.async = true, .timeout_s = 0.1},
                        [released](checkpoint::SaveStage) { released->wait(false); });
        all.save({.step = 1}, false);
        const auto report = all.drain();
        ASSERT_TRUE(report);
        EXPECT_NE(report->error.find("was not written within 0.1 s"), std::string::npos);
    }
    *released = true;
    released->notify_all();
    world().barrier();
    EXPECT_FALSE(checkpoint::find_latest(folder_).folder);
}

TEST_F(SavingTest, OptimizerMayBeLeftOut) {
    TrainingRig rig(world(), model(), {.seed = kSeed});
    train_steps(rig, 1, 2);
    save(rig, {.step = 2, .optimizer_step = 2});
    TrainingRig again(world(), model(), {.seed = kSeed + 1});
    checkpoints(again, {.load_optimizer = false}).restore(checkpoint::choose(world(), folder_));
    const Everything loaded = read_everything(again), saved = read_everything(rig);
    EXPECT_TRUE(same_bits(loaded.parameters, saved.parameters));
    EXPECT_EQ(loaded.steps, 0);
    for (const float moment : loaded.second_moments) ASSERT_EQ(moment, 0.0f);
}

TEST_F(SavingTest, WithoutStrictnessWhatDoesNotFitIsListedAndLeftAsItWas) {
    TrainingRig rig(world(), model(), {.seed = kSeed});
    train_steps(rig, 1, 2);
    save(rig, {.step = 2, .optimizer_step = 2});
    auto wider = model();
    wider.vocab_size = 14;
    TrainingRig other(world(), wider, {.seed = kSeed + 1});
    const auto before = other.parameters();
    const auto left_out =
        checkpoints(other, {.load_strict = false}).restore(checkpoint::choose(world(), folder_));
    ASSERT_FALSE(left_out.empty());
    EXPECT_EQ(left_out[0], "embedding.weight has shape [13, 6] instead of [14, 6]");
    const auto after = other.parameters(), source = rig.parameters();
    for (std::size_t i = 0; i < after.size(); ++i) {
        EXPECT_TRUE(
            same_bits(after[i], after[i].size() == source[i].size() ? source[i] : before[i]))
            << i;
    }
}

}  // namespace
}  // namespace fullshard::train
