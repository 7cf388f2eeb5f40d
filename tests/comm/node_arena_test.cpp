#include "comm/node_arena.h"

#include "base/error.h"
#include "comm/mpi_communicator.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace fullshard::comm {
namespace {

using fullshard::testing::world;

TEST(NodeArena, IsZeroedPageAlignedAndSharedByAllRanks) {
    Progress progress;
    NodeArena arena(world(), 100000, 2, progress);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.memory().data()) % 4096, 0U);
    for (const std::byte byte : arena.memory()) ASSERT_EQ(byte, std::byte{0});
    world().barrier();
    arena.memory()[static_cast<std::size_t>(world().rank())] = std::byte(world().rank() + 1);
    arena.post(0);
    arena.wait(0, 1, [] { return std::string("peers"); });
    for (int rank = 0; rank < world().size(); ++rank) {
        EXPECT_EQ(arena.memory()[static_cast<std::size_t>(rank)], std::byte(rank + 1));
    }
    world().barrier();
}

TEST(NodeArena, WaitingOrdersWritesOfAllRanksOverManyRounds) {
    Progress progress;
    NodeArena arena(world(), 4 * world().size(), 2, progress);
    auto* values = reinterpret_cast<std::int32_t*>(arena.memory().data());
    for (int round = 1; round <= 500; ++round) {
        values[world().rank()] = round;
        arena.post(0);
        arena.wait(0, static_cast<std::uint64_t>(round), [] { return std::string("written"); });
        for (int rank = 0; rank < world().size(); ++rank) ASSERT_EQ(values[rank], round);
        arena.post(1);
        arena.wait(1, static_cast<std::uint64_t>(round), [] { return std::string("read"); });
    }
}

TEST(NodeArena, TooLargeForSharedMemoryIsAnErrorOnEveryRank) {
    if (world().size() == 1) GTEST_SKIP() << "one rank's arena is private memory";
    constexpr std::int64_t kFarTooMuch = std::int64_t{1} << 60;
    try {
        Progress progress;
        NodeArena arena(world(), kFarTooMuch, 1, progress);
        FAIL() << "no error";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("comm.node_shared"), std::string::npos)
            << error.what();
    }
}

TEST(NodeArena, AbsentPeerIsAnErrorInsteadOfAHang) {
    Progress progress;
    NodeArena arena(Group::self(/*timeout_s=*/0.2), 8, 1, progress);
    EXPECT_THROW(arena.wait(0, 1, [] { return std::string("a post that never comes"); }),
                 CommunicationError);
}

// Rank 0 waits for a counter that rank 1 increments only after a collective that needs rank 0:
// large messages and the second phase of an all-reduce move only if rank 0 lets them.
TEST(NodeArena, CollectivesAdvanceWhileARankWaits) {
    Progress progress;
    NodeArena arena(world(), 8, 1, progress);
    MpiCommunicator communicator(world(), progress);
    std::vector<float> values(std::size_t{1} << 20, 1.0F), scratch(values.size());
    if (world().size() > 1)
        scratch.resize(scratch.size() * static_cast<std::size_t>(world().size()));
    Handle handle = communicator.all_reduce(std::span(values), std::span(scratch), 0);
    if (world().rank() != 0) {
        handle.wait();
        arena.post(0);
        return;
    }
    arena.post(0);
    arena.wait(0, 1, [] { return std::string("the others"); });
    handle.wait();
    EXPECT_EQ(values.back(), static_cast<float>(world().size()));
}

}  // namespace
}  // namespace fullshard::comm
