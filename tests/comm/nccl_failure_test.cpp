// NCCL's failures: every rank leaves with the same error, in time, and nothing is left behind.
#include "base/clock.h"
#include "base/error.h"
#include "comm/nccl_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace fullshard::testing {
namespace {

using NcclFailure = NcclTest;

TEST_F(NcclFailure, CreationThatFailsOnOneRankEndsItOnAll) {
    if (last()) shim_.fails["ncclCommInitRankConfig"] = ncclSystemError;
    const std::string text = failed_start(ExitCode::kCommunication);
    EXPECT_TRUE(has(text, "rank " + std::to_string(size() - 1) + " on "));
    EXPECT_TRUE(has(text,
                    "ncclCommInitRankConfig failed: unhandled system error: the shim "
                    "was told to fail"));
    // The peers had begun and are stopped, the failing rank has nothing.
    EXPECT_EQ(std::ranges::count(shim_.functions(), "ncclCommAbort"), last() ? 0 : 1);
}

TEST_F(NcclFailure, CreationThatNeverEndsIsOverAtTheDeadline) {
    options_.start_timeout_s = 0.2;
    if (last()) shim_.never_settles.insert("ncclCommInitRankConfig");
    const double begin = now_seconds();
    EXPECT_EQ(failed_start(ExitCode::kCommunication),
              "no end of the creation of the world communicator within 0.2 s on rank " +
                  std::to_string(size() - 1));
    EXPECT_LT(now_seconds() - begin, 15.0);
    EXPECT_TRUE(has(shim_.functions(), "ncclCommAbort"));
}

TEST_F(NcclFailure, SplitThatFailsOnOneRankEndsItOnAll) {
    if (size() == 1) GTEST_SKIP() << "one rank splits nothing";
    if (last()) shim_.fails["ncclCommSplit"] = ncclInternalError;
    EXPECT_TRUE(has(failed_start(ExitCode::kCommunication), "ncclCommSplit failed"));
    EXPECT_EQ(std::ranges::count(shim_.functions(), "ncclCommAbort"), 1);
}

TEST_F(NcclFailure, FirstCollectiveThatFailsOnOneRankEndsItOnAll) {
    if (last()) shim_.fails["ncclReduceScatter"] = ncclRemoteError;
    EXPECT_TRUE(has(failed_start(ExitCode::kCommunication),
                    "ncclReduceScatter failed: remote process exited"));
}

TEST_F(NcclFailure, FirstCollectiveThatIsNeverLaunchedIsOverAtTheDeadline) {
    options_.start_timeout_s = 0.2;
    shim_.never_settles.insert("ncclAllReduce");
    EXPECT_TRUE(has(failed_start(ExitCode::kCommunication),
                    "no end of the first ncclAllReduce of the world communicator within 0.2 s"));
}

TEST_F(NcclFailure, FirstCollectiveThatNeverEndsIsOverAtTheDeadline) {
    options_.start_timeout_s = 0.2;
    gpu_.hold_events(last());
    EXPECT_EQ(failed_start(ExitCode::kCommunication),
              "no end of the first collectives of the world communicator within 0.2 s on rank " +
                  std::to_string(size() - 1));
}

TEST_F(NcclFailure, FirstCollectiveThatGivesWrongNumbersIsNoticed) {
    if (last()) shim_.corruption = 0.5F;
    const std::string text = failed_start(ExitCode::kRunError);
    EXPECT_TRUE(has(text, "rank " + std::to_string(size() - 1) + " on "));
    EXPECT_TRUE(has(text, "ncclAllGather gives wrong numbers: 1.5 instead of 1"));
}

TEST_F(NcclFailure, AnotherGpuThanTheOneAskedForIsNoticed) {
    if (last()) shim_.cuda_device = 3;
    EXPECT_TRUE(has(failed_start(ExitCode::kRunError), "NCCL uses this rank's GPU"));
}

TEST_F(NcclFailure, ErrorOnTheDeviceLeavesEveryRankAlike) {
    const auto mesh = start(nccl_groups(size()));
    mesh->check();
    if (last()) shim_.async_error = ncclRemoteError;
    const std::string text = agreed_error(ExitCode::kCommunication,
                                          [&] { comm::agree(world(), [&] { mesh->check(); }); });
    EXPECT_TRUE(has(text, "rank " + std::to_string(size() - 1) + " on "));
    EXPECT_TRUE(has(text, "a collective on the device failed: remote process exited"));

    shim_.calls.clear();
    shim_.looks = 3;
    EXPECT_TRUE(mesh->abort());
    EXPECT_EQ(shim_.communicators, 0);
    EXPECT_EQ(shim_.hasty_aborts, 0);
    if (size() == 1) {
        EXPECT_EQ(shim_.functions(), (std::vector<std::string>{"ncclCommRevoke", "ncclCommAbort"}));
    } else {  // none is aborted while a kernel of the other may wait for a peer
        EXPECT_EQ(shim_.functions(), (std::vector<std::string>{"ncclCommRevoke", "ncclCommRevoke",
                                                               "ncclCommAbort", "ncclCommAbort"}));
    }
    EXPECT_TRUE(mesh->abort()) << "once is enough";
}

TEST_F(NcclFailure, RefusedCallNamesItAndIsThrownAtOnce) {
    const auto mesh = start(nccl_groups(size()));
    const auto stream = gpu_.make_stream("reduce", device::Priority::kNormal);
    std::vector<float> values(3);
    shim_.fails["ncclAllReduce"] = ncclSystemError;
    try {
        mesh->shard_group().all_reduce(std::span(values), *stream);
        FAIL() << "no error";
    } catch (const CommunicationError& error) {
        EXPECT_TRUE(has(error.what(), "ncclAllReduce failed: unhandled system error"));
    }
}

/// A world whose deadline a test can wait for.
comm::Group impatient() {
    return world().renewed("impatient", 0.3, comm::CollectiveCheck::kOff);
}

TEST_F(NcclFailure, CollectiveThatNeverEndsIsOverAtTheDeadline) {
    const NcclGroups groups = nccl_groups(size());
    const auto mesh = comm::make_nccl_mesh(impatient(), groups.shard_group, groups.replicas, gpu_,
                                           progress_, options_);
    const auto stream = gpu_.make_stream("gather", device::Priority::kNormal);
    const auto event = gpu_.make_event(device::EventUse::kOrder);
    std::vector<float> values(static_cast<std::size_t>(4 * size()));
    mesh->shard_group().all_gather(adjacent_blocks(std::span(values), size()), *stream);
    stream->record(*event);
    gpu_.hold_events(true);
    try {
        mesh->wait(gpu_, *event);
        FAIL() << "no error";
    } catch (const TimeoutError& error) {
        EXPECT_STREQ(error.what(), "no answer within 0.3 s while waiting for all_gather of 4 fp32");
    }
    // The report of a hang finds the call in the track of its group.
    const comm::RankReport report = world().ledger().report();
    EXPECT_EQ(report.waits_in, "shard group");
    EXPECT_EQ(report.waits_for, "all_gather of 4 fp32");
}

TEST_F(NcclFailure, LaunchThatNeverEndsIsOverAtTheDeadline) {
    const NcclGroups groups = nccl_groups(size());
    const comm::Group hasty = groups.shard_group.renewed("hasty", 0.3, comm::CollectiveCheck::kOff);
    const auto mesh =
        comm::make_nccl_mesh(world(), hasty, groups.replicas, gpu_, progress_, options_);
    const auto stream = gpu_.make_stream("gather", device::Priority::kNormal);
    std::vector<float> values(3);
    shim_.never_settles.insert("ncclAllReduce");
    try {
        mesh->shard_group().all_reduce(std::span(values), *stream);
        FAIL() << "no error";
    } catch (const TimeoutError& error) {
        EXPECT_TRUE(has(error.what(), "the launch of all_reduce of 3 fp32"));
    }
}

TEST_F(NcclFailure, ErrorOnTheDeviceEndsTheWaitOfTheHost) {
    const auto mesh = start(nccl_groups(size()));
    const auto event = gpu_.make_event(device::EventUse::kOrder);
    gpu_.hold_events(true);
    shim_.async_error = ncclRemoteError;
    const double begin = now_seconds();
    EXPECT_THROW(mesh->wait(gpu_, *event), CommunicationError);
    EXPECT_LT(now_seconds() - begin, 10.0) << "found long before the deadline";
}

TEST_F(NcclFailure, CommunicatorThatCannotBeRevokedIsAborted) {
    options_.abort_timeout_s = 0.4;
    const auto mesh = start(nccl_groups(size()));
    if (last()) {
        shim_.never_settles.insert("ncclCommRevoke");
    } else {
        shim_.fails["ncclCommRevoke"] = ncclInvalidArgument;
    }
    EXPECT_TRUE(mesh->abort());
    EXPECT_EQ(shim_.communicators, 0);
}

TEST_F(NcclFailure, LibraryThatDoesNotLetGoIsLeftBehindInTime) {
    options_.abort_timeout_s = 0.2;
    const auto mesh = start(nccl_groups(size()));
    const std::atomic_ref hangs(shim_.abort_hangs);
    hangs.store(true);
    EXPECT_FALSE(mesh->abort());
    hangs.store(false);
    const std::atomic_ref left(shim_.communicators);
    while (left.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_F(NcclFailure, StartThatCannotBeUndoneIsNoAgreedError) {
    options_ = {.start_timeout_s = 0.2, .abort_timeout_s = 0.2};
    shim_.never_settles.insert("ncclAllGather");
    const std::atomic_ref hangs(shim_.abort_hangs);
    hangs.store(true);
    const NcclGroups groups = nccl_groups(size());
    try {
        start(groups);
        ADD_FAILURE() << "no error";
    } catch (const comm::AgreedError& error) {
        ADD_FAILURE() << "main would return from this one: " << error.what();
    } catch (const CommunicationError& error) {
        EXPECT_TRUE(has(error.what(), "NCCL could not be stopped on this rank"));
    }
    hangs.store(false);
    const std::atomic_ref left(shim_.communicators);
    while (left.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_F(NcclFailure, DifferentCallsAreNamedWhereCallsAreCompared) {
    if (size() != 2) GTEST_SKIP() << "with two ranks both find the difference";
    const NcclGroups groups = nccl_groups(size());
    const comm::Group checked =
        groups.shard_group.renewed("checked group", 20.0, comm::CollectiveCheck::kOn);
    const auto mesh =
        comm::make_nccl_mesh(world(), checked, groups.replicas, gpu_, progress_, options_);
    const auto stream = gpu_.make_stream("reduce", device::Priority::kNormal);
    std::vector<float> values(3);
    shim_.calls.clear();
    const TypedSpan mine = TypedSpan(std::span(values)).part(0, rank() == 0 ? 3 : 2);
    try {
        mesh->shard_group().all_reduce(mine, *stream);
        FAIL() << "no error";
    } catch (const CommunicationError& error) {
        EXPECT_TRUE(has(error.what(), "rank 0 calls all_reduce of 3 fp32"));
        EXPECT_TRUE(has(error.what(), "rank 1 calls all_reduce of 2 fp32"));
    }
    EXPECT_FALSE(has(shim_.functions(), "ncclAllReduce")) << "found before it is enqueued";
}

}  // namespace
}  // namespace fullshard::testing
