// comm.check: ranks that call different collectives are told so, instead of hanging or corrupting.
#include "base/error.h"
#include "comm/group.h"
#include "comm/mpi_communicator.h"
#include "comm/topology.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace fullshard::comm {
namespace {

using fullshard::testing::world;

/// A checked group of all ranks. Never freed: after a mismatch it is unusable, and messages of its
/// calls may still be under way.
const Group& checked() {
    return *new Group(world().renewed("checked", /*timeout_s=*/5.0, CollectiveCheck::kOn));
}

std::string error_of(const std::function<void()>& call) {
    try {
        call();
    } catch (const CommunicationError& error) {
        return error.what();
    }
    return "";
}

/// What the ranks were told, one text for each.
std::vector<std::string> errors_of(const std::function<void()>& call) {
    const std::string mine = error_of(call);
    return world().all_gather(mine);
}

void expect_both_calls(const std::vector<std::string>& errors, const std::string& one,
                       const std::string& other) {
    // The odd rank and the next one compare different calls; others may wait in vain.
    int told = 0;
    for (const std::string& error : errors) {
        if (error.find("ranks of one group call different collectives") == std::string::npos)
            continue;
        ++told;
        EXPECT_NE(error.find(one), std::string::npos) << error;
        EXPECT_NE(error.find(other), std::string::npos) << error;
    }
    EXPECT_GE(told, world().size() == 2 ? 2 : 1);
}

TEST(CollectiveCheck, EqualCallsPass) {
    const Group group = world().renewed("checked", 20.0, CollectiveCheck::kOn);
    std::array<std::int64_t, 2> values{group.rank(), 1};
    group.all_reduce(values, Reduction::kSum);
    EXPECT_EQ(values[1], group.size());
    group.barrier();
    EXPECT_EQ(group.broadcast(group.rank() == 0 ? "text" : "", 0), "text");
    EXPECT_EQ(group.all_gather(std::to_string(group.rank())).back(),
              std::to_string(group.size() - 1));
    EXPECT_EQ(group.split(0, group.rank(), "child").size(), group.size());

    Progress progress;
    MpiCommunicator communicator(group, progress);
    std::vector<float> blocks(static_cast<std::size_t>(3 * group.size()), 0.0F);
    blocks[static_cast<std::size_t>(3 * group.rank())] = static_cast<float>(group.rank() + 1);
    communicator.all_gather(adjacent_blocks(std::span(blocks), group.size()), 4).wait();
    for (int rank = 0; rank < group.size(); ++rank)
        EXPECT_EQ(blocks[static_cast<std::size_t>(3 * rank)], static_cast<float>(rank + 1));
}

// https://github.com/deepspeedai/DeepSpeed/issues/7998: ranks that take different paths hang.
TEST(CollectiveCheck, NamesBothControlCalls) {
    if (world().size() == 1) GTEST_SKIP() << "one rank agrees with itself";
    const Group& group = checked();
    const auto errors = errors_of([&] {
        std::array<std::int64_t, 3> values{};
        if (group.rank() == 1) {
            group.barrier();
        } else {
            group.all_reduce(values, Reduction::kSum);
        }
    });
    expect_both_calls(errors, "rank 1 calls barrier", "calls all_reduce of 3 int64");
}

TEST(CollectiveCheck, NamesBothCounts) {
    if (world().size() == 1) GTEST_SKIP() << "one rank agrees with itself";
    const Group& group = checked();
    const auto errors = errors_of([&] {
        std::vector<std::int64_t> values(group.rank() == 0 ? 2 : 5);
        group.all_reduce(values, Reduction::kSum);
    });
    expect_both_calls(errors, "rank 0 calls all_reduce of 2 int64", "calls all_reduce of 5 int64");
}

TEST(CollectiveCheck, NamesBothBulkCallsBeforeDataMoves) {
    if (world().size() == 1) GTEST_SKIP() << "one rank agrees with itself";
    const Group& group = checked();
    static Progress progress;
    auto& communicator = *new MpiCommunicator(group, progress);
    auto& values = *new std::vector<float>(static_cast<std::size_t>(8 * world().size()), 1.0F);
    const auto errors = errors_of([&] {
        if (group.rank() == 0) {
            communicator.broadcast(std::span(values), 0, 2).wait();
        } else {
            communicator.all_gather(adjacent_blocks(std::span(values), group.size()), 2).wait();
        }
    });
    expect_both_calls(errors,
                      "rank 0 calls broadcast of " + std::to_string(8 * world().size()) + " fp32",
                      "calls all_gather of 8 fp32");
}

TEST(Waits, NameTheMissingRank) {
    if (world().size() == 1) GTEST_SKIP() << "one rank has no peer to miss";
    static const Group impatient =
        world().renewed("impatient", world().rank() == 0 ? 0.3 : 40.0, CollectiveCheck::kOff);
    static Progress progress;
    static MpiCommunicator communicator(impatient, progress,
                                        [](int) { return std::string("gather of blocks.1"); });
    static std::vector<float> values(static_cast<std::size_t>(world().size()), 1.0F);
    const auto gather = [&] {
        communicator.all_gather(adjacent_blocks(std::span(values), world().size()), 0).wait();
    };
    const int last = world().size() - 1;
    if (world().rank() != last) {
        const std::string error = error_of([&] {
            if (world().rank() == 0) gather();
        });
        if (world().rank() == 0) {
            EXPECT_NE(error.find("missing"), std::string::npos) << error;
            EXPECT_NE(error.find(std::to_string(last)), std::string::npos) << error;
            const RankReport report = impatient.ledger().report();
            EXPECT_TRUE(report.waits);
            EXPECT_EQ(report.waits_in, "impatient (gather of blocks.1)");
        }
    }
    world().barrier();
    if (world().rank() != 0) gather();
    world().barrier();
}

}  // namespace
}  // namespace fullshard::comm
