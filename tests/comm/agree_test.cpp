#include "comm/agree.h"

#include "support/mpi_world.h"

#include <gtest/gtest.h>

namespace fullshard::comm {
namespace {

using fullshard::testing::world;

TEST(Agree, PassesWhenAllRanksPass) {
    int calls = 0;
    agree(world(), [&] { ++calls; });
    EXPECT_EQ(calls, 1);
}

TEST(Agree, EveryRankThrowsTheErrorOfTheLowestFailingRank) {
    const int last = world().size() - 1;
    try {
        agree(world(), [&] {
            if (world().rank() == last) throw DataError("file 7 is short");
        });
        FAIL() << "no error";
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kData);
        EXPECT_NE(std::string(error.what()).find("file 7 is short"), std::string::npos);
        EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(last)),
                  std::string::npos);
    }
}

TEST(AgreeDone, EndsWhenTheSlowestRankIsDone) {
    int polls = 0;
    agree_done(world(), "count", 20.0, [&] { return ++polls > 5 * world().rank(); });
    EXPECT_EQ(polls, 5 * world().rank() + 1) << "a rank that is done is not asked again";
}

TEST(AgreeDone, FailureOfOneRankEndsTheWorkOfAll) {
    const int last = world().size() - 1;
    try {
        agree_done(world(), "count", 20.0, [&]() -> bool {
            if (world().rank() == last) throw RunError("no memory");
            return false;
        });
        FAIL() << "no error";
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kRunError);
        EXPECT_EQ(std::string(error.what()).find("rank " + std::to_string(last)), 0U);
        EXPECT_NE(std::string(error.what()).find("no memory"), std::string::npos);
    }
}

TEST(AgreeDone, DeadlineNamesTheRanksThatAreNotDone) {
    const int last = world().size() - 1;
    try {
        agree_done(world(), "creation", 0.1, [&] { return world().rank() != last; });
        FAIL() << "no error";
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kCommunication);
        EXPECT_EQ(std::string(error.what()),
                  "no end of the creation within 0.1 s on rank " + std::to_string(last));
    }
}

TEST(Group, GathersTextsOfDifferentLengths) {
    const auto texts =
        world().all_gather(std::string(static_cast<std::size_t>(world().rank() * 3), 'x'));
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(world().size()));
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i].size(), i * 3);
}

}  // namespace
}  // namespace fullshard::comm
