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

TEST(Group, GathersTextsOfDifferentLengths) {
    const auto texts =
        world().all_gather(std::string(static_cast<std::size_t>(world().rank() * 3), 'x'));
    ASSERT_EQ(texts.size(), static_cast<std::size_t>(world().size()));
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i].size(), i * 3);
}

}  // namespace
}  // namespace fullshard::comm
