#include "checkpoint/format/folder.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
  protected:
    std::set<std::string> names() const {
        std::set<std::string> names;
        for (const auto& entry : fs::directory_iterator(parent_))
            names.insert(entry.path().filename());
        return names;
    }
    fs::path folder(std::int64_t step, const char* suffix = "") const {
        return parent_ / (folder_name(step) + suffix);
    }
    std::int64_t optimizer_step(const fs::path& path) const {
        return open_folder(path).progress.optimizer_step;
    }
    /// A whole checkpoint of step 10 that says another count of optimizer steps than a fresh one.
    fs::path save_older_one() {
        const fs::path saved = toy::save(parent_);
        toy::rewrite_manifest(saved,
                              [](Manifest& manifest) { manifest.progress.optimizer_step = 7; });
        return saved;
    }

    toy::TemporaryFolder temporary_;
    fs::path parent_ = temporary_.path() / "checkpoints";
};

TEST_F(FolderTest, CommitLeavesTheFinalFolderWithItsFourFiles) {
    const fs::path saved = toy::save(parent_, {.step = 10, .ranks = 2});
    EXPECT_EQ(saved, folder(10));
    EXPECT_EQ(names(), std::set<std::string>{"step-00000010"});
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(saved)) files.insert(entry.path().filename());
    EXPECT_EQ(files,
              (std::set<std::string>{"COMPLETE", "effective.ini", "manifest.json", "state.h5"}));
    EXPECT_EQ(open_folder(saved).writer.ranks, 2);
    EXPECT_EQ(read_file(saved / kDeckFile), "[train]\nsteps = 20\n");
}

TEST_F(FolderTest, CompleteIsALineOfXxhsum) {
    const fs::path saved = toy::save(parent_);
    EXPECT_EQ(
        read_file(saved / kCompleteFile),
        "XXH3 (manifest.json) = " + digest_text(digest(read_file(saved / kManifestFile))) + "\n");
}

TEST_F(FolderTest, NamesSortAsTextToo) {
    EXPECT_EQ(folder_name(10), "step-00000010");
    EXPECT_EQ(folder_name(1234567890), "step-1234567890");
}

TEST_F(FolderTest, BeginRemovesWhatEarlierAttemptsLeft) {
    toy::save(parent_, {.step = 5});
    fs::create_directories(folder(8, ".tmp") / "deep");
    toy::write_text(folder(10, ".tmp"), "even a file");
    const fs::path begun = begin_save(parent_, 10);
    EXPECT_EQ(names(), (std::set<std::string>{"step-00000005", "step-00000010.tmp"}));
    EXPECT_TRUE(fs::is_empty(begun));
}

TEST_F(FolderTest, CommitChecksWhatItPublishes) {
    const fs::path begun = begin_save(parent_, 10);
    Manifest manifest = toy::write_state(begun, {});
    Manifest uncovered = manifest;
    uncovered.tensors[2].blocks.pop_back();
    EXPECT_THROW(commit_save(begun, uncovered), DataError);
    fs::resize_file(begun / kStateFile, 1000);
    EXPECT_THROW(commit_save(begun, manifest), DataError);
    manifest.progress.step = 11;
    EXPECT_THROW(commit_save(begun, manifest), LogicError);
    EXPECT_EQ(names(), std::set<std::string>{"step-00000010.tmp"});
}

TEST_F(FolderTest, LatestIsByNumberAndSaysWhatItPassedOver) {
    for (const std::int64_t step : {900, 1000, 9900, 10000}) toy::save(parent_, {.step = step});
    EXPECT_EQ(find_latest(parent_).folder, folder(10000));
    EXPECT_TRUE(find_latest(parent_).skipped.empty());

    fs::remove(folder(10000) / kCompleteFile);
    fs::resize_file(folder(9900) / kStateFile, 4096);
    fs::create_directory(folder(20000, ".tmp"));
    fs::create_directory(parent_ / "step-999999999");
    const Latest latest = find_latest(parent_);
    EXPECT_EQ(latest.folder, folder(1000));
    ASSERT_EQ(latest.skipped.size(), 4u);
    EXPECT_TRUE(toy::contains(latest.skipped[0], "step-999999999/manifest.json"));
    EXPECT_TRUE(toy::contains(latest.skipped[1], "step-00020000.tmp is an unfinished save"));
    EXPECT_TRUE(toy::contains(latest.skipped[2], "step-00010000/COMPLETE is missing"));
    EXPECT_TRUE(toy::contains(latest.skipped[3], "step-00009900/state.h5 has 4096 bytes"));
}

TEST_F(FolderTest, OtherNamesAreNoCheckpoints) {
    const fs::path saved = toy::save(parent_);
    for (const char* name : {"step-10", "step-00000011.bak", "best", "step-", "step--0000001",
                             "step-99999999999999999999"}) {
        fs::copy(saved, parent_ / name, fs::copy_options::recursive);
    }
    const Latest latest = find_latest(parent_);
    EXPECT_EQ(latest.folder, saved);
    EXPECT_TRUE(latest.skipped.empty());
}

TEST_F(FolderTest, MissingParentHasNone) {
    EXPECT_FALSE(find_latest(parent_).folder);
}

TEST_F(FolderTest, FolderHoldsTheStepOfItsName) {
    fs::rename(toy::save(parent_), folder(20));
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { open_folder(folder(20) / ""); }), "holds step 10"));
    EXPECT_FALSE(find_latest(parent_).folder);
    fs::rename(folder(20), parent_ / "kept");
    EXPECT_EQ(open_folder(parent_ / "kept").progress.step, 10);
}

TEST_F(FolderTest, SameStepIsReplaced) {
    const fs::path saved = save_older_one();
    EXPECT_EQ(optimizer_step(saved), 7);
    toy::save(parent_);
    EXPECT_EQ(names(), std::set<std::string>{"step-00000010"});
    EXPECT_EQ(optimizer_step(saved), 9);
}

// What is on disk when the process is killed within a save of step 10 that replaces an older one,
// in order of time. The older save of step 10 or the new one is found at every point.

TEST_F(FolderTest, KilledWhileWritingTheState) {
    save_older_one();
    toy::write_state(begin_save(parent_, 10), {});
    EXPECT_EQ(optimizer_step(*find_latest(parent_).folder), 7);
}

TEST_F(FolderTest, KilledAfterComplete) {
    fs::rename(toy::save(parent_), parent_ / "aside");
    save_older_one();
    fs::rename(parent_ / "aside", folder(10, ".tmp"));
    EXPECT_EQ(optimizer_step(*find_latest(parent_).folder), 7);
}

TEST_F(FolderTest, KilledBetweenTheTwoRenames) {
    const fs::path saved = save_older_one();
    fs::rename(saved, folder(10, ".replaced"));
    toy::write_state(begin_save(parent_, 10), {});
    EXPECT_EQ(find_latest(parent_).folder, folder(10, ".replaced"));
    EXPECT_EQ(optimizer_step(*find_latest(parent_).folder), 7);
    // The next save of that step tidies up.
    toy::save(parent_);
    EXPECT_EQ(names(), std::set<std::string>{"step-00000010"});
}

TEST_F(FolderTest, KilledBeforeTheReplacedOneIsDeleted) {
    fs::rename(save_older_one(), parent_ / "aside");
    toy::save(parent_);
    fs::rename(parent_ / "aside", folder(10, ".replaced"));
    EXPECT_EQ(optimizer_step(*find_latest(parent_).folder), 9);
    EXPECT_EQ(retain(parent_, {.keep_last = 1}, {}),
              std::vector<fs::path>{folder(10, ".replaced")});
    EXPECT_EQ(names(), std::set<std::string>{"step-00000010"});
}

TEST_F(FolderTest, KilledWhileDeleting) {
    toy::save(parent_, {.step = 5});
    fs::rename(toy::save(parent_, {.step = 10}), folder(10, ".tmp"));
    fs::remove(folder(10, ".tmp") / kStateFile);
    EXPECT_EQ(find_latest(parent_).folder, folder(5));
    begin_save(parent_, 15);
    EXPECT_EQ(names(), (std::set<std::string>{"step-00000005", "step-00000015.tmp"}));
}

TEST_F(FolderTest, RetainKeepsTheNewestWholeOnes) {
    for (const std::int64_t step : {900, 1000, 9900, 10000}) toy::save(parent_, {.step = step});
    fs::remove(folder(10000) / kCompleteFile);
    EXPECT_TRUE(retain(parent_, {.keep_last = 0}, {}).empty());
    EXPECT_TRUE(retain(parent_, {.keep_last = 3}, {}).empty());
    EXPECT_EQ(retain(parent_, {.keep_last = 2}, {}), std::vector<fs::path>{folder(900)});
    EXPECT_EQ(names(), (std::set<std::string>{"step-00001000", "step-00009900", "step-00010000"}));
    EXPECT_EQ(retain(parent_, {.keep_last = 1}, {}), std::vector<fs::path>{folder(1000)});
}

TEST_F(FolderTest, RetainKeepsEveryNthBesides) {
    for (const std::int64_t step : {10, 15, 20, 25, 30, 35}) toy::save(parent_, {.step = step});
    retain(parent_, {.keep_last = 1, .keep_every = 20}, folder(35));
    EXPECT_EQ(names(), (std::set<std::string>{"step-00000020", "step-00000035"}));
}

// unslothai/unsloth-zoo 782: a stale higher step made rotation delete the fresh checkpoint.
TEST_F(FolderTest, RetainNeverDeletesTheOneJustSaved) {
    for (const std::int64_t step : {5, 10, 1000}) toy::save(parent_, {.step = step});
    retain(parent_, {.keep_last = 1}, folder(10));
    EXPECT_EQ(names(), (std::set<std::string>{"step-00000010", "step-00001000"}));
}

TEST_F(FolderTest, CheckpointsOfALeftPastAreSetAside) {
    for (const std::int64_t step : {5, 10, 15, 20}) toy::save(parent_, {.step = step});
    fs::remove(folder(15) / kCompleteFile);
    EXPECT_EQ(abandon_after(parent_, 5),
              (std::vector{folder(20, ".abandoned"), folder(10, ".abandoned")}));
    EXPECT_EQ(find_latest(parent_).folder, folder(5));
    EXPECT_TRUE(open_folder(folder(20, ".abandoned")).progress.step == 20);
    EXPECT_TRUE(fs::exists(folder(15)));  // damaged: it stays for whoever wants to know why
    EXPECT_TRUE(abandon_after(parent_, 5).empty());
}

TEST_F(FolderTest, ClockThatWentBackwardsChangesNothing) {
    for (const std::int64_t step : {10, 20}) toy::save(parent_, {.step = step});
    const auto past = fs::file_time_type::clock::now() - std::chrono::hours(24 * 365);
    for (const auto& entry : fs::directory_iterator(folder(20))) {
        fs::last_write_time(entry.path(), past);
    }
    fs::last_write_time(folder(20), past);
    EXPECT_EQ(find_latest(parent_).folder, folder(20));
    retain(parent_, {.keep_last = 1}, folder(20));
    EXPECT_EQ(names(), std::set<std::string>{"step-00000020"});
}

TEST_F(FolderTest, DiskWithoutRoomIsToldWithBothNumbers) {
    EXPECT_NO_THROW(require_space(parent_ / "does" / "not" / "exist", 1));
    const std::int64_t exabyte = std::int64_t{1} << 60;
    EXPECT_TRUE(toy::contains(toy::error_of([&] { require_space(parent_, exabyte); }),
                              "needs 1210567579838237900 bytes, the disk has "));
}

TEST_F(FolderTest, FailedSaveLeavesNothing) {
    const fs::path begun = begin_save(parent_, 10);
    toy::write_state(begun, {});
    EXPECT_EQ(begun, temporary_folder(parent_, 10));
    discard_save(begun);
    discard_save(begun);
    EXPECT_TRUE(names().empty());
}

TEST_F(FolderTest, CommitPassesItsStagesInOrder) {
    const fs::path begun = begin_save(parent_, 10);
    const Manifest manifest = toy::write_state(begun, {});
    std::vector<SaveStage> passed;
    commit_save(begun, manifest, [&](SaveStage stage) {
        passed.push_back(stage);
        const bool complete = fs::exists(begun / kCompleteFile);
        EXPECT_EQ(complete, stage == SaveStage::kBeforeRename);
        EXPECT_TRUE(fs::exists(begun / kManifestFile));
    });
    EXPECT_EQ(passed, (std::vector{SaveStage::kBeforeComplete, SaveStage::kBeforeRename}));
}

TEST_F(FolderTest, UserPathsNameACheckpointOrItsRun) {
    EXPECT_THROW(locate_checkpoint(parent_), DataError);
    toy::save(parent_, {.step = 5});
    const fs::path newest = toy::save(parent_, {.step = 10});
    EXPECT_EQ(locate_checkpoint(temporary_.path()).folder, newest);
    EXPECT_EQ(locate_checkpoint(parent_).folder, newest);
    EXPECT_EQ(locate_checkpoint(folder(5)).folder, folder(5));

    // A damaged one that is named is meant; among others it is passed over.
    fs::remove(newest / kCompleteFile);
    EXPECT_EQ(locate_checkpoint(newest).folder, newest);
    EXPECT_EQ(locate_checkpoint(temporary_.path()).folder, folder(5));
    EXPECT_EQ(locate_checkpoint(temporary_.path()).skipped.size(), 1u);
    fs::remove(folder(5) / kManifestFile);
    EXPECT_TRUE(toy::contains(toy::error_of([&] { locate_checkpoint(temporary_.path()); }),
                              "holds no whole checkpoint: "));
}

}  // namespace
}  // namespace fullshard::checkpoint
