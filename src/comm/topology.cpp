#include "comm/topology.h"

#include "base/error.h"
#include "comm/agree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

namespace fullshard::comm {

bool Topology::equal_nodes() const {
    return std::ranges::all_of(node_sizes, [&](int size) { return size == node_sizes.front(); });
}

std::string Topology::describe() const {
    return fmt::format("{} rank{} on {} node{} ({})", world.size(), world.size() == 1 ? "" : "s",
                       nodes(), nodes() == 1 ? "" : "s", fmt::join(node_sizes, " + "));
}

Topology find_topology(const Group& ranks, int ranks_per_node) {
    Topology topology;
    topology.node = ranks.split_by_shared_memory();
    if (ranks_per_node > 0) {
        const int node = ranks.rank() / ranks_per_node;
        const int on_this_host =
            topology.node.split(node, ranks.rank(), "ranks of an emulated node").size();
        topology.node = ranks.split(node, ranks.rank(), fmt::format("node {}", node));
        agree(ranks, [&] {
            if (on_this_host == topology.node.size()) return;
            throw UsageError(
                fmt::format("topology.ranks_per_node = {} puts ranks of different hosts on one "
                            "node; leave it at 0 to ask the hardware",
                            ranks_per_node));
        });
    }
    // A node is known by the lowest rank on it; its index is the number of lower such ranks.
    std::array<std::int64_t, 1> leader{ranks.rank()};
    topology.node.all_reduce(leader, Reduction::kMin);
    std::vector<std::int64_t> leaders(static_cast<std::size_t>(ranks.size()));
    ranks.all_gather(leader, leaders);
    for (int rank = 0; rank < ranks.size(); ++rank) {
        if (leaders[static_cast<std::size_t>(rank)] != rank) continue;
        if (rank == leader[0]) topology.node_index = topology.nodes();
        topology.node_sizes.push_back(static_cast<int>(std::ranges::count(leaders, rank)));
    }
    // Ties in the key keep the order of ranks, which is the order within the node.
    topology.world = ranks.split(0, topology.node_index, "world");
    return topology;
}

namespace {

/// `name` is the group's.
NodeLanes make_lanes(const Group& group, const std::string& name, int node_index,
                     bool node_shared) {
    const Group node =
        group.split(node_index, group.rank(), fmt::format("{} on node {}", name, node_index));
    std::array<std::int64_t, 1> smallest{node.size()}, largest{node.size()};
    group.all_reduce(smallest, Reduction::kMin);
    group.all_reduce(largest, Reduction::kMax);
    if (!node_shared || smallest != largest) return {Group::self(group.timeout_s()), group};
    return {node, group.split(node.rank(), group.rank(),
                              fmt::format("lane {} of {}", node.rank(), name))};
}

}  // namespace

Mesh make_mesh(const Topology& topology, int group_size, bool node_shared) {
    const Group& world = topology.world;
    ensure(group_size > 0 && world.size() % group_size == 0,
           "shard groups of equal size make up the world");
    const int replica = world.rank() / group_size;
    const int shard = world.rank() % group_size;
    const std::string group_name = fmt::format("shard group {}", replica);
    Mesh mesh{world.split(replica, world.rank(), group_name),
              world.split(shard, world.rank(), fmt::format("replicas of shard {}", shard)),
              {}};
    mesh.lanes = make_lanes(mesh.shard_group, group_name, topology.node_index, node_shared);
    return mesh;
}

Group split_lane(const Group& lane, int size) {
    ensure(size > 0 && lane.size() % size == 0, "groups of equal size make up the lane");
    const int part = lane.rank() / size;
    return lane.split(part, lane.rank(), fmt::format("part {} of a lane", part));
}

}  // namespace fullshard::comm
