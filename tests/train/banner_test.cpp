#include "train/banner.h"

#include "base/log.h"
#include "train/sharding_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace fullshard::train {
namespace {

TEST(StartNumber, CountsTheFirstLinesOfStarts) {
    const auto path = std::filesystem::path(::testing::TempDir()) / "fullshard-starts.log";
    std::filesystem::remove(path);
    EXPECT_EQ(starts_in(path), 0);
    std::ofstream(path) << "2026-01-01 10:00:00 I FullShard 0.1.0 (abc, Release), start 1\n"
                           "2026-01-01 10:00:00 I resumed from FullShard 0.1.0\n"
                           "2026-01-02 10:00:00 I FullShard 0.1.0 (abc, Release), start 2\n"
                           "2026-01-02 10:00:0";  // a crash cut the line short
    EXPECT_EQ(starts_in(path), 2);
    std::filesystem::remove(path);
}

TEST(UnevenGroups, AreThoseWhoseNodesHoldUnlikeNumbersOfTheirRanks) {
    using Sizes = std::vector<int>;
    EXPECT_TRUE(has_uneven_group(Sizes{3, 1}, 4));
    EXPECT_FALSE(has_uneven_group(Sizes{2, 2}, 4));
    EXPECT_FALSE(has_uneven_group(Sizes{2, 2}, 2));
    EXPECT_FALSE(has_uneven_group(Sizes{4}, 4));
    EXPECT_FALSE(has_uneven_group(Sizes{3, 1}, 2));  // 2 on the first node, then 1 + 1
    EXPECT_FALSE(has_uneven_group(Sizes{3, 1}, 1));
    EXPECT_TRUE(has_uneven_group(Sizes{4, 3, 1}, 4));  // the second group
    EXPECT_TRUE(has_uneven_group(Sizes{1, 3}, 4));
}

}  // namespace
}  // namespace fullshard::train
