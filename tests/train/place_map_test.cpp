#include "train/place_map.h"

#include <gtest/gtest.h>

#include <functional>

namespace fullshard::train {
namespace {

using Lines = std::vector<std::string>;

/// Nodes n0, n1, ... of the given sizes; `cpus` tells those of a node's local rank.
std::vector<comm::RankPlace> places_of(const std::vector<int>& node_sizes,
                                       const std::function<std::vector<int>(int, int)>& cpus) {
    std::vector<comm::RankPlace> places;
    for (std::size_t n = 0; n < node_sizes.size(); ++n) {
        const int node = static_cast<int>(n);
        for (int local = 0; local < node_sizes[n]; ++local) {
            places.push_back({.rank = static_cast<int>(places.size()),
                              .host = "n" + std::to_string(n),
                              .node = node,
                              .local_rank = local,
                              .cpus = cpus(node, local),
                              .node_cpus = 8});
        }
    }
    return places;
}

std::vector<int> two_each(int /*node*/, int local) {
    return {2 * local, 2 * local + 1};
}

TEST(PlaceMap, OneNodeTellsTheCpusOfEachRank) {
    EXPECT_EQ(place_map(places_of({2}, two_each), 16),
              (Lines{"node 0 (n0): ranks 0-1 on CPUs 0-1 | 2-3"}));
    EXPECT_EQ(place_map(places_of({1}, two_each), 16), (Lines{"node 0 (n0): rank 0 on CPUs 0-1"}));
}

TEST(PlaceMap, RanksWithEqualCpusShareThem) {
    const auto all = [](int, int) { return std::vector<int>{0, 1, 2, 3}; };
    EXPECT_EQ(place_map(places_of({3}, all), 16), (Lines{"node 0 (n0): ranks 0-2 on CPUs 0-3"}));
}

TEST(PlaceMap, EqualNeighboursFoldIntoOneLine) {
    EXPECT_EQ(place_map(places_of(std::vector<int>(100, 2), two_each), 16),
              (Lines{"nodes 0-99 (n0 .. n99): ranks 0-199, 2 a node, on CPUs 0-1 | 2-3"}));
    EXPECT_EQ(
        place_map(places_of({2, 2, 1, 2}, two_each), 16),
        (Lines{"nodes 0-1 (n0 .. n1): ranks 0-3, 2 a node, on CPUs 0-1 | 2-3",
               "node 2 (n2): rank 4 on CPUs 0-1", "node 3 (n3): ranks 5-6 on CPUs 0-1 | 2-3"}));
}

TEST(PlaceMap, ManyRanksAndManyNodesStayShort) {
    const auto one_each = [](int, int local) { return std::vector<int>{local}; };
    const Lines wide = place_map(places_of({128}, one_each), 16);
    ASSERT_EQ(wide.size(), 1u);
    EXPECT_TRUE(wide[0].ends_with("| 14 | 15 | ...")) << wide[0];

    const auto shifted = [](int node, int local) { return std::vector<int>{node + local}; };
    const Lines many = place_map(places_of(std::vector<int>(20, 1), shifted), 4);
    ASSERT_EQ(many.size(), 4u);
    EXPECT_EQ(many[2], "node 2 (n2): rank 2 on CPUs 2");
    EXPECT_TRUE(many[3].starts_with("nodes 3-19, ranks 3-19: ")) << many[3];
    EXPECT_EQ(place_map(places_of(std::vector<int>(4, 1), shifted), 4).back(),
              "node 3 (n3): rank 3 on CPUs 3");
}

}  // namespace
}  // namespace fullshard::train
