// How NCCL is started and ended: which calls, with which arguments, in which order.
#include "comm/nccl/nccl_checks.h"
#include "comm/nccl_rig.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace fullshard::testing {
namespace {

std::vector<std::string> warm_up_of(const std::string& comm) {
    return {"ncclAllGather " + comm, "ncclReduceScatter " + comm, "ncclAllReduce " + comm,
            "ncclBroadcast " + comm};
}

void append(std::vector<std::string>& all, const std::vector<std::string>& more) {
    all.insert(all.end(), more.begin(), more.end());
}

TEST_F(NcclTest, StartMakesTheSameCallsInTheSameOrder) {
    for (int shard_size = 1; shard_size <= size(); ++shard_size) {
        if (size() % shard_size != 0) continue;
        fresh_nccl_shim();
        const NcclGroups groups = nccl_groups(shard_size);
        const auto mesh = start(groups);
        const bool shard_is_world = shard_size == size();
        const bool replicas_are_world = shard_size == 1;

        const std::string world_name = "world communicator";
        std::vector<std::string> expected{"ncclGetVersion"};
        if (rank() == 0) expected.emplace_back("ncclGetUniqueId");
        expected.push_back("ncclCommInitRankConfig " + world_name);
        if (!shard_is_world) expected.emplace_back("ncclCommSplit shard communicator");
        if (!replicas_are_world) expected.emplace_back("ncclCommSplit replica communicator");
        if (!shard_is_world && !replicas_are_world) {
            append(expected, {"ncclCommFinalize " + world_name, "ncclCommDestroy " + world_name});
        }
        append(expected, warm_up_of(shard_is_world ? world_name : "shard communicator"));
        append(expected, warm_up_of(replicas_are_world ? world_name : "replica communicator"));
        EXPECT_EQ(call_texts(shim_), expected) << "groups of " << shard_size;

        EXPECT_EQ(mesh->shard_group().size(), shard_size);
        EXPECT_EQ(mesh->shard_group().rank(), rank() % shard_size);
        EXPECT_EQ(mesh->replicas().size(), size() / shard_size);
        EXPECT_EQ(mesh->replicas().rank(), rank() / shard_size);
        EXPECT_EQ(mesh->shard_group().bytes_received(), 0) << "the warm-up is no part of a run";
        mesh->close();
    }
}

TEST_F(NcclTest, CommunicatorsAreNonBlockingAndShareNothing) {
    const int shard_size = size() % 2 == 0 ? 2 : 1;
    const auto mesh = start(nccl_groups(shard_size));
    int made = 0;
    for (const NcclCall& call : shim_.calls) {
        if (call.function == "ncclCommInitRankConfig") {
            EXPECT_EQ(call.first, size());
            EXPECT_EQ(call.second, rank());
        } else if (call.function == "ncclCommSplit" && call.comm == "shard communicator") {
            EXPECT_EQ(call.first, rank() / shard_size * shard_size);
            EXPECT_EQ(call.second, rank() % shard_size);
        } else if (call.function == "ncclCommSplit") {
            EXPECT_EQ(call.first, rank() % shard_size);
            EXPECT_EQ(call.second, rank() / shard_size);
        } else {
            continue;
        }
        EXPECT_EQ(call.blocking, 0);
        EXPECT_EQ(call.split_share, 0);
        ++made;
    }
    EXPECT_EQ(made, shim_.communicators + (shard_size == 2 && size() == 4 ? 1 : 0));
}

TEST_F(NcclTest, EveryCallIsPolledUntilItIsSettled) {
    shim_.looks = 5;  // the shim refuses calls on a communicator that is not settled
    const auto mesh = start(nccl_groups(size()));
    const auto stream = gpu_.make_stream("gather", device::Priority::kNormal);
    std::vector<float> values(static_cast<std::size_t>(size()));
    for (int call = 0; call < 3; ++call) {
        mesh->shard_group().all_gather(adjacent_blocks(std::span(values), size()), *stream);
        ASSERT_EQ(shim_.calls.back().function, "ncclAllGather");
    }
    mesh->close();
}

TEST_F(NcclTest, CloseFinalizesBeforeItDestroys) {
    const auto mesh = start(nccl_groups(1));
    shim_.calls.clear();
    mesh->close();
    std::vector<std::string> expected;
    if (size() > 1) {
        expected = {"ncclCommFinalize shard communicator", "ncclCommDestroy shard communicator"};
    }
    append(expected, {"ncclCommFinalize world communicator", "ncclCommDestroy world communicator"});
    EXPECT_EQ(call_texts(shim_), expected);
    EXPECT_EQ(shim_.communicators, 0);
    EXPECT_TRUE(mesh->abort()) << "there is nothing left to abort";
}

TEST_F(NcclTest, MeshThatIsNotClosedIsAborted) {
    { const auto mesh = start(nccl_groups(size())); }
    EXPECT_EQ(shim_.communicators, 0);
    EXPECT_TRUE(has(shim_.functions(), "ncclCommAbort"));
    EXPECT_FALSE(has(shim_.functions(), "ncclCommFinalize"));
}

/// Sets a variable for the length of a test.
class Variable {
  public:
    Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~Variable() { ::unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    const char* name_;
};

TEST_F(NcclTest, LaunchOrderIsImplicitUnlessTheUserSaysOtherwise) {
    ::unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    start(nccl_groups(size()))->close();
    EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
    EXPECT_TRUE(comm::nccl_environment_notes().empty());

    const Variable users("NCCL_LAUNCH_ORDER_IMPLICIT", "0");
    start(nccl_groups(size()))->close();
    EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "0");
}

TEST_F(NcclTest, NotesNameVariablesThatHarmAndAllThatSetNcclUp) {
    const Variable connections("CUDA_DEVICE_MAX_CONNECTIONS", "1");
    const Variable order("NCCL_LAUNCH_ORDER_IMPLICIT", "0");
    const Variable algorithm("NCCL_ALGO", "Ring");
    const auto notes = comm::nccl_environment_notes();
    ASSERT_EQ(notes.size(), 3U);
    EXPECT_TRUE(has(notes[0], "CUDA_DEVICE_MAX_CONNECTIONS=1"));
    EXPECT_TRUE(has(notes[1], "NCCL_LAUNCH_ORDER_IMPLICIT=0"));
    EXPECT_TRUE(has(notes[2], "NCCL_ALGO=Ring NCCL_LAUNCH_ORDER_IMPLICIT=0"));
}

TEST_F(NcclTest, OldVersionIsRefused) {
    if (last()) shim_.version = 22808;
    const std::string text = failed_start(ExitCode::kRunError);
    EXPECT_TRUE(has(text, "rank " + std::to_string(size() - 1) + " on "));
    EXPECT_TRUE(has(text, "NCCL 2.28.8 is loaded"));
    EXPECT_TRUE(has(text, "2.28.9 or later"));
    EXPECT_FALSE(has(shim_.functions(), "ncclCommInitRankConfig"));
}

TEST_F(NcclTest, DifferentVersionsAreRefused) {
    if (size() == 1) GTEST_SKIP() << "takes two ranks";
    if (last()) shim_.version = 23004;
    EXPECT_TRUE(has(failed_start(ExitCode::kRunError),
                    "rank " + std::to_string(size() - 1) + " has another version of NCCL"));
}

TEST_F(NcclTest, RanksThatShareAGpuAreListedWithBothRemedies) {
    if (size() == 1) GTEST_SKIP() << "takes two ranks";
    FakeGpu shared(rank() < 2 ? "GPU-shared" : "GPU-" + std::to_string(rank()));
    const NcclGroups groups = nccl_groups(size());
    const std::string text = agreed_error(ExitCode::kUsage, [&] {
        comm::make_nccl_mesh(world(), groups.shard_group, groups.replicas, shared, progress_,
                             options_);
    });
    EXPECT_TRUE(has(text, "GPU-shared (rank 0 on "));
    EXPECT_TRUE(has(text, ", rank 1 on "));
    EXPECT_FALSE(has(text, "rank 2"));
    EXPECT_TRUE(has(text, "as many ranks on a node as it has GPUs"));
    EXPECT_TRUE(has(text, "NCCL_HOSTID"));
    EXPECT_FALSE(has(shim_.functions(), "ncclCommInitRankConfig"));
}

TEST_F(NcclTest, RanksThatShareAGpuMayHaveHostIdsOfTheirOwn) {
    FakeGpu shared("GPU-shared");
    const Variable host_id("NCCL_HOSTID", ("rank" + std::to_string(rank())).c_str());
    const NcclGroups groups = nccl_groups(size());
    comm::make_nccl_mesh(world(), groups.shard_group, groups.replicas, shared, progress_, options_)
        ->close();
}

}  // namespace
}  // namespace fullshard::testing
