#include "base/log.h"

#include "base/error.h"
#include "base/files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace fullshard {
namespace {

namespace fs = std::filesystem;

/// A folder of the test's own.
class LogTest : public ::testing::Test {
  protected:
    LogTest() {
        fs::remove_all(folder_);
        fs::create_directories(folder_);
    }
    ~LogTest() override { fs::remove_all(folder_); }

    /// The file's lines without date and time: "I text".
    std::vector<std::string> lines(const std::string& name) const {
        const std::string text = read_file(folder_ / name);
        std::vector<std::string> found;
        for (std::size_t first = 0; first < text.size();) {
            const std::size_t end = text.find('\n', first);
            constexpr std::size_t kTime = std::string_view("2026-01-01 12:00:00 ").size();
            found.push_back(text.substr(first + kTime, end - first - kTime));
            first = end + 1;
        }
        return found;
    }

    fs::path folder_ = fs::path(::testing::TempDir()) / "fullshard-log-test";
};

using Lines = std::vector<std::string>;

TEST_F(LogTest, RunLogIsRankZerosAndIsContinued) {
    for (const int rank : {0, 1}) {
        Log log(rank);
        log.append_to(folder_ / "run.log");
        log.info("step {}", 7);
        log.record_error("an error");
    }
    {
        Log log(0);
        log.append_to(folder_ / "run.log");
        log.warn("second start");
    }
    EXPECT_EQ(lines("run.log"), (Lines{"I step 7", "E an error", "W second start"}));
}

TEST_F(LogTest, LogsOfRanksHoldAllTheirLinesAndTheConsoleOnlyWarnings) {
    ::testing::internal::CaptureStderr();
    Log log(3);
    log.keep_own(folder_ / "logs" / "rank-00003.log");
    log.info("a line");
    log.warn("a warning");
    const std::string console = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(lines("logs/rank-00003.log"), (Lines{"I a line", "W rank 3: a warning"}));
    EXPECT_EQ(console.find("a line"), std::string::npos);
    EXPECT_NE(console.find("W rank 3: a warning\n"), std::string::npos);
    EXPECT_EQ(log.lost_lines(), 0);
}

TEST_F(LogTest, LinesThatTheDiskDoesNotTakeAreCountedAndToldOnce) {
    ASSERT_TRUE(fs::exists("/dev/full"));
    ::testing::internal::CaptureStderr();
    Log log(2);
    log.keep_own("/dev/full");
    log.info("one");
    log.info("two");
    const std::string console = ::testing::internal::GetCapturedStderr();
    EXPECT_GE(log.lost_lines(), 2);
    const std::string told = "fullshard: rank 2: the log is not complete";
    ASSERT_NE(console.find(told), std::string::npos) << console;
    EXPECT_EQ(console.find(told), console.rfind(told)) << console;
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnErrorThatNamesIt) {
    Log log(0);
    try {
        log.append_to(folder_);
        FAIL() << "a folder was opened as a log";
    } catch (const RunError& error) {
        EXPECT_NE(std::string(error.what()).find("fullshard-log-test"), std::string::npos);
    }
}

}  // namespace
}  // namespace fullshard
