#include "comm/ledger.h"

#include "comm/hang_report.h"
#include "comm/watchdog.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

namespace fullshard::comm {
namespace {

TEST(RankList, FoldsRuns) {
    EXPECT_EQ(rank_list({}), "");
    EXPECT_EQ(rank_list({3}), "3");
    EXPECT_EQ(rank_list({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

TEST(Call, Describes) {
    EXPECT_EQ((Call{.kind = "barrier"}).describe(), "barrier");
    EXPECT_EQ((Call{.kind = "all_gather", .count = 12, .type = "bf16"}).describe(),
              "all_gather of 12 bf16");
    EXPECT_EQ((Call{.kind = "broadcast", .count = 1, .type = "fp32", .root = 2}).describe(),
              "broadcast of 1 fp32 from rank 2");
}

TEST(Ledger, CountsCallsAndKnowsTheWait) {
    Ledger ledger;
    const auto world = ledger.add_track("world", {0, 1, 2});
    const auto node = ledger.add_track("node 0", {0, 1});
    EXPECT_EQ(ledger.begin(world, {.kind = "barrier"}), 1);
    EXPECT_EQ(ledger.begin(world, {.kind = "all_reduce", .count = 3, .type = "int64"}), 2);
    EXPECT_EQ(ledger.begin(node, {.kind = "barrier"}), 1);
    ledger.enter("training step", 17);
    ledger.waits({world, 2, "all_reduce of 3 int64"});

    const RankReport report = ledger.report();
    EXPECT_EQ(report.activity, "training step 17");
    EXPECT_TRUE(report.waits);
    EXPECT_EQ(report.waits_in, "world");
    EXPECT_EQ(report.sequence, 2);
    ASSERT_EQ(report.tracks.size(), 2U);
    EXPECT_EQ(report.tracks[0].calls, 2);
    EXPECT_EQ(report.tracks[0].last, "all_reduce of 3 int64");
    ledger.waits_no_more();
    EXPECT_FALSE(ledger.report().waits);
}

TEST(Ledger, TracksAreRecycled) {
    Ledger ledger;
    const auto first = ledger.add_track("a", {0});
    ledger.begin(first, {.kind = "barrier"});
    ledger.remove_track(first);
    const auto second = ledger.add_track("b", {0});
    EXPECT_EQ(second, first);
    EXPECT_EQ(ledger.begin(second, {.kind = "barrier"}), 1);
}

TEST(Ledger, PatienceEndsWithItsScope) {
    Ledger ledger;
    ledger.allow(5.0);
    {
        const Ledger::Patience longer(ledger, 50.0);
        EXPECT_EQ(ledger.allowed_s(), 50.0);
        const Ledger::Patience shorter(ledger, 1.0);
        EXPECT_EQ(ledger.allowed_s(), 50.0);
    }
    EXPECT_EQ(ledger.allowed_s(), 5.0);
}

TEST(Ledger, ForgivesTimeInWhichTheProcessDidNotRun) {
    Ledger ledger;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_GE(ledger.quiet_s(), 0.03);
    ledger.forgive(1000.0);
    EXPECT_GE(ledger.quiet_s(), 0.0);
    EXPECT_LT(ledger.quiet_s(), 0.03);
}

/// A rank that waits in call `sequence` of a track which it and `members` have.
RankReport waiting(int rank, const std::string& track, std::vector<int> members,
                   std::int64_t sequence) {
    RankReport report;
    report.rank = rank;
    report.host = "host";
    report.activity = "training step 4";
    report.quiet_s = 10;
    report.waits = true;
    report.waits_in = track;
    report.sequence = sequence;
    report.waits_for = "all_reduce of 3 int64";
    report.tracks = {{track, std::move(members), sequence, "all_reduce of 3 int64"}};
    return report;
}

RankReport busy(int rank, const std::string& track, std::vector<int> members, std::int64_t calls) {
    RankReport report = waiting(rank, track, std::move(members), calls);
    report.waits = false;
    return report;
}

TEST(HangReport, NamesTheRankThatIsBusyElsewhere) {
    const std::vector<RankReport> reports{waiting(0, "world", {0, 1, 2}, 41),
                                          busy(1, "world", {0, 1, 2}, 40),
                                          waiting(2, "world", {0, 1, 2}, 41)};
    EXPECT_EQ(
        explain_hang(reports, 3),
        "rank 1 has not come to all_reduce of 3 int64, call 41 of world, where ranks 0, 2 wait; "
        "rank 1 on host has called nothing for 10 s, in training step 4 (its last there: "
        "all_reduce of 3 int64, call 40)");
}

TEST(HangReport, NamesTheRankThatSaysNothing) {
    const std::vector<RankReport> reports{waiting(0, "world", {0, 1, 2}, 41),
                                          waiting(2, "world", {0, 1, 2}, 41)};
    EXPECT_EQ(
        explain_hang(reports, 3),
        "rank 1 has not come to all_reduce of 3 int64, call 41 of world, where ranks 0, 2 wait; "
        "rank 1 says nothing: it is stopped, dead, or sees no files");
}

TEST(HangReport, BlamesTheEndOfAChainOfWaits) {
    // 3 waits for 2 in their lane, 2 and 1 for 0 in their node.
    RankReport two = waiting(2, "node", {0, 1, 2}, 7);
    two.tracks.push_back({"lane", {2, 3}, 1, "all_gather"});
    const std::vector<RankReport> reports{busy(0, "node", {0, 1, 2}, 6),
                                          waiting(1, "node", {0, 1, 2}, 7), two,
                                          waiting(3, "lane", {2, 3}, 2)};
    const std::string text = explain_hang(reports, 4);
    EXPECT_NE(text.find("rank 0 has not come"), std::string::npos) << text;
    EXPECT_NE(text.find("ranks 1-2 wait"), std::string::npos) << text;
}

TEST(HangReport, BelievesARankThatKnowsWhoIsMissing) {
    RankReport fence = waiting(0, "", {}, 0);
    fence.waits_for = "the ranks of the node to have published blocks.1";
    fence.missing = {2};
    fence.tracks.clear();
    const std::vector<RankReport> reports{fence};
    const std::string text = explain_hang(reports, 3);
    EXPECT_NE(text.find("rank 2 has not come to the ranks of the node to have published blocks.1"),
              std::string::npos)
        << text;
}

TEST(HangReport, ListsCallsThatDoNotMatch) {
    RankReport zero = waiting(0, "world", {0, 1}, 5);
    RankReport one = waiting(1, "node", {0, 1}, 9);
    zero.tracks.push_back({"node", {0, 1}, 8, "barrier"});
    one.tracks.push_back({"world", {0, 1}, 4, "barrier"});
    const std::vector<RankReport> reports{zero, one};
    const std::string text = explain_hang(reports, 2);
    EXPECT_NE(text.find("ranks wait for each other"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0 in all_reduce of 3 int64, call 5 of world"), std::string::npos)
        << text;
    EXPECT_NE(text.find("rank 1 in all_reduce of 3 int64, call 9 of node"), std::string::npos)
        << text;
}

TEST(HangReport, SaysWhenEverybodyHasCome) {
    const std::vector<RankReport> reports{waiting(0, "world", {0, 1}, 5),
                                          waiting(1, "world", {0, 1}, 5)};
    EXPECT_NE(explain_hang(reports, 2).find("messages are lost or do not move"), std::string::npos);
}

TEST(HangReport, ReportsSurviveTheFolder) {
    const std::filesystem::path folder =
        std::filesystem::path(::testing::TempDir()) / "fullshard_hang_reports";
    std::filesystem::remove_all(folder);
    EXPECT_TRUE(read_reports(folder).empty());
    RankReport second = waiting(7, "world", {0, 7}, 3);
    second.missing = {0};
    const std::vector<std::vector<int>> groups{
        {4, 5, 6, 7}, {1, 9, 17, 25}, {0, 1, 2, 8, 16, 3}, {3}};
    for (const auto& members : groups) second.tracks.push_back({"lane", members, 1, "barrier"});
    write_report(folder, second);
    write_report(folder, busy(0, "world", {0, 7}, 2));
    std::ofstream(folder / "rank-00009.json") << "{\"rank\": 9";  // its writer died

    const auto reports = read_reports(folder);
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_EQ(reports[0].rank, 0);
    EXPECT_FALSE(reports[0].waits);
    EXPECT_EQ(reports[1].missing, std::vector<int>{0});
    EXPECT_EQ(reports[1].sequence, 3);
    EXPECT_EQ(reports[1].tracks.at(0).members, (std::vector<int>{0, 7}));
    for (std::size_t i = 0; i < groups.size(); ++i)
        EXPECT_EQ(reports[1].tracks.at(i + 1).members, groups[i]);
    std::filesystem::remove_all(folder);
}

TEST(Watchdog, AsksItsChecksUntilTheyAreGone) {
    Watchdog watchdog(std::make_shared<Ledger>());
    std::atomic<int> asked = 0;
    {
        const Watchdog::Registration registration(watchdog,
                                                  [&]() -> std::optional<Watchdog::Verdict> {
                                                      ++asked;
                                                      return std::nullopt;
                                                  });
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        while (asked < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    }
    EXPECT_GE(asked, 2);
    const int before = asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    EXPECT_EQ(asked, before);
}

TEST(WatchdogDeathTest, EndsAQuietProcess) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const auto ledger = std::make_shared<Ledger>();
            Watchdog watchdog(ledger);
            ledger->enter("MPI_Init");
            ledger->allow(0.3);
            std::this_thread::sleep_for(std::chrono::seconds(20));
        },
        ::testing::ExitedWithCode(5), "nothing has moved for [01] s in MPI_Init");
}

}  // namespace
}  // namespace fullshard::comm
