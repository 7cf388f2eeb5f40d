#include "comm/topology.h"

#include "base/error.h"
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

TEST(Mesh, RankIsLaneRankTimesNodeSizePlusNodeRank) {
    const Topology topology = find_topology(world(), 2);
    const NodeLanes lanes = make_mesh(topology, world().size(), true).lanes;
    EXPECT_EQ(lanes.node.size() * lanes.lane.size(), topology.world.size());
    EXPECT_EQ(lanes.lane.rank() * lanes.node.size() + lanes.node.rank(), topology.world.rank());
    // Unequal nodes (three ranks as 2 + 1) fall back to the flat plan.
    if (!topology.equal_nodes()) {
        EXPECT_EQ(lanes.node.size(), 1);
    }
}

TEST(Mesh, WithoutSharedMemoryEveryRankIsANodeOfItsOwn) {
    const NodeLanes lanes = make_mesh(find_topology(world(), 0), world().size(), false).lanes;
    EXPECT_EQ(lanes.node.size(), 1);
    EXPECT_EQ(lanes.lane.size(), world().size());
}

TEST(Mesh, RankIsReplicaTimesGroupSizePlusRankInTheGroup) {
    const Topology topology = find_topology(world(), 0);
    for (int size = 1; size <= world().size(); ++size) {
        if (world().size() % size != 0) continue;
        const Mesh mesh = make_mesh(topology, size, true);
        EXPECT_EQ(mesh.shard_group.size(), size);
        EXPECT_EQ(mesh.replicas.size(), world().size() / size);
        EXPECT_EQ(mesh.replicas.rank() * size + mesh.shard_group.rank(), topology.world.rank());
        EXPECT_EQ(mesh.lanes.node.size(), size);  // within one node
    }
    EXPECT_THROW(make_mesh(topology, world().size() + 1, true), LogicError);
}

TEST(Mesh, AGroupSmallerThanANodeSharesMemoryAmongItsOwnRanksOnly) {
    if (world().size() != 4) GTEST_SKIP() << "two groups on a node: needs 4 ranks";
    const Mesh on_one_node = make_mesh(find_topology(world(), 0), 2, true);
    EXPECT_EQ(on_one_node.lanes.node.size(), 2);
    const Mesh across = make_mesh(find_topology(world(), 1), 2, true);
    EXPECT_EQ(across.lanes.node.size(), 1);
    EXPECT_EQ(across.lanes.lane.size(), 2);
}

TEST(SplitLane, MakesGroupsOfConsecutiveRanks) {
    for (int size = 1; size <= world().size(); ++size) {
        if (world().size() % size != 0) continue;
        const Group part = split_lane(world(), size);
        EXPECT_EQ(part.size(), size);
        EXPECT_EQ(part.rank(), world().rank() % size);
    }
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
