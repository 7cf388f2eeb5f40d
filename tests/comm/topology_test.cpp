#include "comm/topology.h"

#include "support/mpi_world.h"

#include <gtest/gtest.h>

namespace fullshard::comm {
namespace {

using fullshard::testing::world;

TEST(Topology, AllRanksOfOneMachineAreOneNode) {
    const Topology topology = find_topology(world(), 0);
    EXPECT_EQ(topology.nodes(), 1);
    EXPECT_EQ(topology.node.size(), world().size());
    EXPECT_EQ(topology.world.rank(), world().rank());
}

TEST(Topology, EmulatedNodesAreNumberedByTheirLowestRank) {
    const int per_node = 2;
    const Topology topology = find_topology(world(), per_node);
    EXPECT_EQ(topology.nodes(), (world().size() + 1) / 2);
    EXPECT_EQ(topology.node_index, world().rank() / 2);
    EXPECT_EQ(topology.node.rank(), world().rank() % 2);
    EXPECT_EQ(topology.equal_nodes(), world().size() % 2 == 0 || world().size() == 1);
}

TEST(NodeLanes, RankIsLaneRankTimesNodeSizePlusNodeRank) {
    const Topology topology = find_topology(world(), 2);
    const NodeLanes lanes = make_lanes(topology, true);
    EXPECT_EQ(lanes.node.size() * lanes.lane.size(), topology.world.size());
    EXPECT_EQ(lanes.lane.rank() * lanes.node.size() + lanes.node.rank(), topology.world.rank());
    // Unequal nodes (three ranks as 2 + 1) fall back to the flat plan.
    if (!topology.equal_nodes()) {
        EXPECT_EQ(lanes.node.size(), 1);
    }
}

TEST(NodeLanes, WithoutSharedMemoryEveryRankIsANodeOfItsOwn) {
    const Topology topology = find_topology(world(), 0);
    const NodeLanes lanes = make_lanes(topology, false);
    EXPECT_EQ(lanes.node.size(), 1);
    EXPECT_EQ(lanes.lane.size(), world().size());
}

TEST(Topology, ReorderedRanksAreRenumberedNodeMajor) {
    // Round-robin placement: even ranks and odd ranks live on two nodes.
    const Group shuffled = world().split(0, world().rank() % 2 * 100 + world().rank());
    const Topology topology = find_topology(shuffled, (world().size() + 1) / 2);
    std::vector<std::int64_t> nodes(static_cast<std::size_t>(world().size()));
    const std::int64_t mine = topology.node_index;
    topology.world.all_gather(std::span(&mine, 1), nodes);
    EXPECT_TRUE(std::is_sorted(nodes.begin(), nodes.end()));
}

}  // namespace
}  // namespace fullshard::comm
