#include "comm/placement.h"

#include "support/mpi_world.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>

namespace fullshard::comm {
namespace {

using fullshard::testing::world;

RankPlace place(int rank, std::string host, std::vector<int> cpus, int node_cpus = 8) {
    return {.rank = rank, .host = std::move(host), .cpus = std::move(cpus), .node_cpus = node_cpus};
}

/// The one warning there is.
std::string warning(const std::vector<RankPlace>& places, std::int64_t threads) {
    const auto all = placement_warnings(places, threads);
    EXPECT_EQ(all.size(), 1);
    return all.empty() ? "" : all[0];
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(CpuList, JoinsNeighbours) {
    EXPECT_EQ(cpu_list(std::array{0, 1, 2, 3, 8}), "0-3,8");
    EXPECT_EQ(cpu_list(std::array{5}), "5");
    EXPECT_EQ(cpu_list(std::array{1, 3, 4}), "1,3-4");
    EXPECT_EQ(cpu_list({}), "none");
}

TEST(HaveCpus, CountsThoseOfAllRanksOfAHostAndOfEachMask) {
    EXPECT_TRUE(have_cpus(std::vector{place(0, "a", {0, 1}), place(1, "a", {2, 3})}, 2));
    EXPECT_FALSE(have_cpus(std::vector{place(0, "a", {0, 1}), place(1, "a", {2, 3})}, 3));
    // Unbound ranks share what is there; bound ones have no more than their mask.
    EXPECT_TRUE(
        have_cpus(std::vector{place(0, "a", {0, 1, 2, 3}), place(1, "a", {0, 1, 2, 3})}, 2));
    EXPECT_FALSE(have_cpus(std::vector{place(0, "a", {0, 1, 2}), place(1, "a", {0, 1, 2})}, 2));
    EXPECT_FALSE(have_cpus(std::vector{place(0, "a", {0}), place(1, "a", {1, 2, 3})}, 2));
    // The poorest host decides.
    EXPECT_FALSE(have_cpus(std::vector{place(0, "a", {0, 1}), place(1, "b", {0})}, 2));
}

TEST(PlacementWarnings, RanksWithCpusOfTheirOwnAreFine) {
    EXPECT_TRUE(placement_warnings({}, 1).empty());
    EXPECT_TRUE(
        placement_warnings(
            std::vector{place(0, "a", {0, 1}), place(1, "a", {2, 3}), place(2, "b", {0, 1})}, 2)
            .empty());
    // A rank alone on its host may use all of it.
    EXPECT_TRUE(
        placement_warnings(std::vector{place(0, "a", {0, 1, 2, 3, 4, 5, 6, 7})}, 8).empty());
}

TEST(PlacementWarnings, MoreThreadsThanCpusTakeTurns) {
    const std::vector places{place(0, "a", {0, 1}, 2), place(1, "a", {0, 1}, 2)};
    const std::string text = warning(places, 2);
    EXPECT_TRUE(contains(text, "a: 2 ranks with 2 threads each on 2 CPUs")) << text;
    EXPECT_TRUE(contains(text, "kernels.threads")) << text;
}

TEST(PlacementWarnings, AllRanksBoundToTheFirstCore) {
    const std::string text = warning({place(0, "a", {0}), place(1, "a", {0})}, 1);
    EXPECT_TRUE(contains(text, "may use CPUs 0 of 8 only")) << text;
    EXPECT_TRUE(contains(text, "--cpu-bind=cores")) << text;
}

TEST(PlacementWarnings, OneCoreForManyThreads) {
    // The step as a whole has CPUs enough, one rank has not.
    const std::string text = warning({place(0, "a", {0, 1, 2, 3}), place(1, "a", {4})}, 2);
    EXPECT_TRUE(contains(text, "local rank 1 may use CPUs 4 only for its 2 threads")) << text;
    EXPECT_TRUE(contains(text, "--cpus-per-task=2")) << text;
}

TEST(PlacementWarnings, UnboundRanks) {
    const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7};
    const std::string text = warning({place(0, "a", all), place(1, "a", all)}, 1);
    EXPECT_TRUE(contains(text, "not bound")) << text;
    EXPECT_TRUE(contains(text, "CPUs 0-7")) << text;
}

TEST(PlacementWarnings, MasksThatOverlap) {
    const std::string text =
        warning({place(0, "a", {0, 1}), place(1, "a", {2, 3}), place(2, "a", {3, 4})}, 1);
    EXPECT_TRUE(contains(text, "local ranks 1 and 2 may both use CPUs 3")) << text;
}

TEST(PlacementWarnings, HostsInTheSameStateShareASentence) {
    std::vector<RankPlace> places;
    for (int rank = 0; rank < 10; ++rank)
        places.push_back(place(rank, "node" + std::to_string(rank / 2), {0}));
    const std::string text = warning(places, 1);
    EXPECT_TRUE(text.starts_with("node0, node1, node2 and 2 more: ")) << text;
    places.push_back(place(10, "odd", {0}, 1));
    places.push_back(place(11, "odd", {0}, 1));
    EXPECT_EQ(placement_warnings(places, 1).size(), 2);
}

TEST(Placement, TellsWhatTheSystemAllows) {
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (world().rank() == 0) {
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    }
    const Topology topology = find_topology(world(), 2);
    const std::vector<RankPlace> places = gather_places(topology);
    sched_setaffinity(0, sizeof before, &before);

    ASSERT_EQ(static_cast<int>(places.size()), world().size());
    for (int rank = 0; rank < world().size(); ++rank) {
        const RankPlace& found = places[static_cast<std::size_t>(rank)];
        EXPECT_EQ(found.rank, rank);
        EXPECT_EQ(found.node, rank / 2);
        EXPECT_EQ(found.local_rank, rank % 2);
        EXPECT_EQ(found.node_cpus, sysconf(_SC_NPROCESSORS_ONLN));
        EXPECT_EQ(static_cast<int>(found.cpus.size()), rank == 0 ? 1 : CPU_COUNT(&before));
    }
    EXPECT_EQ(places[0].cpus, std::vector{first});
}

}  // namespace
}  // namespace fullshard::comm
