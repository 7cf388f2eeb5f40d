#include "train/run_folder.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace fullshard::train {
namespace {

namespace fs = std::filesystem;

const std::string kRun = R"({"kind":"run","ranks":4})"
                         "\n";
const std::string kSteps = R"({"kind":"eval","step":0})"
                           "\n"
                           R"({"kind":"step","step":1})"
                           "\n"
                           R"({"kind":"step","step":2})"
                           "\n";
const std::string kDone = R"({"kind":"summary","step":2,"stopped_early":false})"
                          "\n";

class RunFolder : public testing::Test {
  protected:
    void SetUp() override {
        fs::create_directories(folder_);
        write("effective.ini", "old deck");
        write("run.log", "old lines");
        write("checkpoints/step-00000001.tmp/state.h5", "half");
    }
    void TearDown() override { fs::remove_all(folder_); }

    void write(const std::string& name, const std::string& text) {
        fs::create_directories((folder_ / name).parent_path());
        write_file_atomically(folder_ / name, text);
    }
    std::string content(const std::string& name) const { return read_file(folder_ / name); }
    bool has(const std::string& name) const { return fs::exists(folder_ / name); }
    void prepare(FolderUse use, std::int64_t step) {
        prepare_run_folder(folder_, use, {.step = step}, "new deck");
    }

    const fs::path folder_ =
        fs::path(testing::TempDir()) / ("fullshard-run-folder-" + std::to_string(getpid()));
};

TEST_F(RunFolder, WithoutMetricsHoldsNoRun) {
    EXPECT_FALSE(holds_run(folder_));
    EXPECT_EQ(read_earlier_run(folder_), std::nullopt);
    EXPECT_EQ(read_earlier_run(folder_ / "missing"), std::nullopt);
}

TEST_F(RunFolder, AnEvaluationThatIsStillToComeIsDropped) {
    write("metrics.jsonl", R"({"kind":"eval","step":0}
{"kind":"step","step":2}
{"kind":"eval","step":2}
)");
    prepare_run_folder(folder_, FolderUse::kContinue, {.step = 2, .evaluation_pending = true}, "");
    EXPECT_EQ(content("metrics.jsonl"), R"({"kind":"eval","step":0}
{"kind":"step","step":2}
)");
}

TEST_F(RunFolder, InterruptedRunIsRead) {
    write("metrics.jsonl", kRun + kSteps + R"({"kind":"st)");
    const auto run = read_earlier_run(folder_);
    ASSERT_TRUE(run);
    EXPECT_EQ(run->effective_deck, "old deck");
    EXPECT_EQ(run->finished_step, std::nullopt);
    EXPECT_FALSE(run->had_checkpoint);
}

TEST_F(RunFolder, LastSummaryTellsWhetherTheRunIsFinished) {
    write("metrics.jsonl", kRun + kSteps + kDone);
    EXPECT_EQ(read_earlier_run(folder_)->finished_step, 2);
    write("metrics.jsonl", kRun + R"({"kind":"checkpoint","step":1})"
                                  "\n"
                                  R"({"kind":"summary","step":1,"stopped_early":true})"
                                  "\n");
    EXPECT_EQ(read_earlier_run(folder_)->finished_step, std::nullopt);
    EXPECT_TRUE(read_earlier_run(folder_)->had_checkpoint);
}

TEST_F(RunFolder, NewRunFindsNothing) {
    write("metrics.jsonl", kRun + kSteps);
    prepare(FolderUse::kNew, 0);
    EXPECT_EQ(content("effective.ini"), "new deck");
    EXPECT_FALSE(has("run.log"));
    EXPECT_FALSE(has("metrics.jsonl"));
    EXPECT_FALSE(has("checkpoints"));
}

TEST_F(RunFolder, ContinuedRunKeepsThePastOnly) {
    write("metrics.jsonl", kRun + kSteps + kDone);
    prepare(FolderUse::kContinue, 1);
    EXPECT_EQ(content("metrics.jsonl"), kRun + R"({"kind":"eval","step":0})"
                                               "\n"
                                               R"({"kind":"step","step":1})"
                                               "\n");
    EXPECT_EQ(content("run.log"), "old lines");
    EXPECT_EQ(content("effective.ini"), "new deck");
}

TEST_F(RunFolder, RunThatStartsAgainKeepsTheLogOnly) {
    write("metrics.jsonl", kRun + kSteps);
    prepare(FolderUse::kStartAgain, 0);
    EXPECT_FALSE(has("metrics.jsonl"));
    EXPECT_EQ(content("run.log"), "old lines");
    EXPECT_EQ(content("effective.ini"), "new deck");
}

// Another job held the folder while this one started up.
TEST_F(RunFolder, RunThatWentOnMeanwhileDoesNotStartAgain) {
    write("metrics.jsonl", kRun + kSteps + kDone);
    EXPECT_THROW(prepare(FolderUse::kStartAgain, 0), RunError);
    write("metrics.jsonl", kRun + kSteps);
    fs::create_directories(folder_ / "checkpoints/step-00000002");
    EXPECT_THROW(prepare(FolderUse::kStartAgain, 0), RunError);
    EXPECT_EQ(content("metrics.jsonl"), kRun + kSteps);
}

TEST_F(RunFolder, FinishedRunStaysAsItIs) {
    write("metrics.jsonl", kRun + kSteps + kDone);
    prepare(FolderUse::kLeave, 2);
    EXPECT_EQ(content("metrics.jsonl"), kRun + kSteps + kDone);
    EXPECT_EQ(content("effective.ini"), "old deck");
}

TEST_F(RunFolder, AnUnfinishedSaveIsNoCheckpoint) {
    EXPECT_FALSE(checkpoint::has_finished_save(folder_ / "missing"));
    EXPECT_FALSE(checkpoint::has_finished_save(folder_ / "checkpoints"));
    fs::create_directories(folder_ / "checkpoints/step-00000001");  // damaged, yet it was one
    EXPECT_TRUE(checkpoint::has_finished_save(folder_ / "checkpoints"));
}

TEST_F(RunFolder, MustBeAFolder) {
    EXPECT_NO_THROW(check_run_folder(folder_));
    EXPECT_THROW(check_run_folder(folder_ / "run.log"), UsageError);
}

TEST_F(RunFolder, KeepsTheFilesOfATokenizer) {
    write("elsewhere/tokenizer.json", "{}");
    write("elsewhere/model.safetensors", "weights");
    keep_tokenizer(folder_, folder_ / "elsewhere");
    EXPECT_EQ(read_file(folder_ / "tokenizer/tokenizer.json"), "{}");
    EXPECT_FALSE(fs::exists(folder_ / "tokenizer/model.safetensors"));

    write("elsewhere/tokenizer.json", "{1}");  // a start that goes on
    keep_tokenizer(folder_, folder_ / "elsewhere");
    EXPECT_EQ(read_file(folder_ / "tokenizer/tokenizer.json"), "{1}");
    keep_tokenizer(folder_, folder_ / "tokenizer");  // by an effective deck
    EXPECT_EQ(read_file(folder_ / "tokenizer/tokenizer.json"), "{1}");
    keep_tokenizer(folder_, {});
}

TEST_F(RunFolder, ATokenizerIsAFolder) {
    check_tokenizer({});
    write("elsewhere/tokenizer.bin", "");
    check_tokenizer(folder_ / "elsewhere");
    EXPECT_THROW(check_tokenizer(folder_), UsageError);
    EXPECT_THROW(check_tokenizer(folder_ / "none"), UsageError);
    EXPECT_THROW(check_tokenizer(folder_ / "run.log"), UsageError);
}

}  // namespace
}  // namespace fullshard::train
