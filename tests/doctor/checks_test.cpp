// The parts of the checks that need no other rank.
#include "base/error.h"
#include "doctor/deadline.h"
#include "doctor/file_system.h"
#include "doctor/finding.h"
#include "doctor/kept_checkpoints.h"
#include "doctor/single_copy.h"
#include "doctor/speed.h"
#include "doctor/sums.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

namespace fullshard::doctor {
namespace {

namespace fs = std::filesystem;

TEST(Finding, SaysGradeMeasuredRequiredAndRemedy) {
    EXPECT_EQ(to_text(fine("clocks", "3 us")), "ok    clocks                 3 us\n");
    EXPECT_EQ(to_text(warning("clocks", "2.0 s", "within 1 s", "start chrony")),
              "warn  clocks                 2.0 s; needed: within 1 s\n"
              "      -> start chrony\n");
    EXPECT_TRUE(to_text(failure("a", "b", "", "c")).starts_with("FAIL  a "));
}

TEST(Finding, QuantitiesHaveUnits) {
    EXPECT_EQ(size_text(512), "512 B");
    EXPECT_EQ(size_text(std::int64_t{64} << 20), "64 MiB");
    EXPECT_EQ(size_text(3 << 29), "1.5 GiB");
    EXPECT_EQ(rate_text(500'000'000, 0.25), "2.00 GB/s");
    EXPECT_EQ(time_text(45.3e-6), "45.3 us");
    EXPECT_EQ(time_text(0.0123), "12.3 ms");
    EXPECT_EQ(time_text(2.0), "2.0 s");
}

TEST(Within, ReturnsThrowsOrGivesUp) {
    int calls = 0;
    within(30.0, "counting", [&] { ++calls; });
    EXPECT_EQ(calls, 1);
    EXPECT_THROW(within(30.0, "failing", [] { throw DataError("bad"); }), DataError);
    // The work owns its state: it goes on after we have gone.
    const auto release = std::make_shared<std::atomic<bool>>(false);
    try {
        within(0.05, "a dead file system", [release] {
            while (!*release) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
        FAIL() << "waited for what never ends";
    } catch (const RunError& error) {
        EXPECT_NE(std::string(error.what()).find("a dead file system: no answer"),
                  std::string::npos);
    }
    *release = true;
}

TEST(FileSystem, DoubtsDependOnKindAndNodes) {
    EXPECT_EQ(file_system_of(0x0bd00bd0, 8).name, "lustre");
    EXPECT_EQ(file_system_of(0x0bd00bd0, 8).doubt, "");
    EXPECT_EQ(file_system_of(0x6969, 1).doubt, "");
    EXPECT_NE(file_system_of(0x6969, 2).doubt, "");
    EXPECT_NE(file_system_of(0x01021994, 1).doubt, "");
    EXPECT_EQ(file_system_of(0x12345678, 1).name, "unknown kind 0x12345678");
    EXPECT_EQ(file_system_of(file_system_magic("/proc"), 1).name, "unknown kind 0x9fa0");
    EXPECT_THROW(file_system_magic("/nowhere/at/all"), RunError);
}

TEST(CheckpointsToCome, ANewOneIsWholeBeforeAnOldOneGoes) {
    config::Checkpoint keys{.every = 10, .keep_last = 2};
    EXPECT_EQ(checkpoints_to_come(keys, 100, 0), 3);
    EXPECT_EQ(checkpoints_to_come(keys, 100, 2), 1);
    EXPECT_EQ(checkpoints_to_come(keys, 100, 5), 1);
    EXPECT_EQ(checkpoints_to_come(keys, 10, 0), 1);  // the run writes no more
    keys.keep_every = 50;
    EXPECT_EQ(checkpoints_to_come(keys, 100, 0), 5);
    keys.keep_last = 0;
    EXPECT_EQ(checkpoints_to_come(keys, 95, 0), 10);  // all stay
    keys.every = 0;
    EXPECT_EQ(checkpoints_to_come(keys, 100, 0), 1);  // on request
}

TEST(KeptCheckpoints, CountsFinishedOnes) {
    std::string name = (fs::temp_directory_path() / "fullshard-doctor-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    const fs::path folder = name;
    for (const char* each : {"step-00000002", "step-00000004", "step-00000006.tmp", "other"})
        fs::create_directory(folder / each);
    EXPECT_EQ(kept_checkpoints(folder), 2);
    fs::remove_all(folder);
    EXPECT_EQ(kept_checkpoints(folder), 0);
}

// open-mpi/ompi#4948: containers forbid it, and MPI fails or crawls.
TEST(SingleCopy, WhereItIsForbiddenTheVariableIsNamed) {
    const Finding found = grade({.refused = EPERM, .seconds = 0.1}, false);
    EXPECT_EQ(found.grade, Grade::kWarning);
    EXPECT_NE(found.measured.find("Operation not permitted"), std::string::npos);
    EXPECT_NE(found.remedy.find("OMPI_MCA_btl_vader_single_copy_mechanism=none"),
              std::string::npos);
    EXPECT_EQ(grade({.refused = EPERM, .seconds = 0.1}, true).grade, Grade::kOk);
}

TEST(SingleCopy, SlowTransferIsAWarningEitherWay) {
    EXPECT_EQ(grade({.seconds = 0.6}, false).grade, Grade::kOk);
    EXPECT_EQ(grade({.seconds = 0.7}, false).grade, Grade::kWarning);
    EXPECT_EQ(grade({.seconds = 0.7}, true).grade, Grade::kWarning);
    EXPECT_EQ(grade({}, false).grade, Grade::kOk);  // one rank a node
}

TEST(BusFactor, IsThatOfNcclTests) {
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllGather, 4), 0.75);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kReduceScatter, 8), 0.875);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kAllReduce, 4), 1.5);
    EXPECT_DOUBLE_EQ(bus_factor(Collective::kBroadcast, 4), 1.0);
}

TEST(Straggler, IsFarBehindTheMedian) {
    EXPECT_EQ(straggler(std::array{1.0, 1.1, 0.9, 2.5}), std::nullopt);
    EXPECT_EQ(straggler(std::array{1.0, 4.0, 0.9, 1.2}), 1);
    EXPECT_EQ(straggler(std::array{1.0}), std::nullopt);
}

TEST(TreeSum, AddsPowersOfTwoFirst) {
    // 1e8 + 1 is 1e8 in fp32, so the order shows.
    EXPECT_EQ(tree_sum_of(std::array{1e8f, 1.0f, -1e8f}, DType::kFloat32), 0.0f);
    EXPECT_EQ(tree_sum_of(std::array{1e8f, -1e8f, 1.0f}, DType::kFloat32), 1.0f);
    EXPECT_EQ(tree_sum_of(std::array{1e8f, 1.0f, -1e8f, 1.0f}, DType::kFloat32), 0.0f);
    EXPECT_EQ(tree_sum_of(std::array{256.0f, 1.0f}, DType::kBFloat16), 256.0f);
    EXPECT_EQ(tree_sum_of(std::array{256.0f, 1.0f}, DType::kFloat32), 257.0f);
}

TEST(Contribution, TellsOrdersOfSummationApart) {
    int different = 0;
    for (std::int64_t i = 0; i < 100; ++i) {
        std::array<float, 4> values{};
        for (int rank = 0; rank < 4; ++rank)
            values[static_cast<std::size_t>(rank)] = contribution(rank, i, DType::kFloat32);
        const float in_turn = ((values[0] + values[1]) + values[2]) + values[3];
        different += tree_sum_of(values, DType::kFloat32) != in_turn ? 1 : 0;
    }
    EXPECT_GT(different, 10);
}

}  // namespace
}  // namespace fullshard::doctor
