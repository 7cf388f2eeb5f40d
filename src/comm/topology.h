// Which ranks share a node, and who exchanges data with whom.
#pragma once

#include "comm/group.h"

#include <string>
#include <vector>

namespace fullshard::comm {

/// The job's ranks renumbered node-major: the ranks of a node are consecutive, so that an aligned
/// group of ranks is a subtree of the order of summation.
struct Topology {
    Group world;
    Group node;                   ///< the ranks on this rank's node
    int node_index = 0;           ///< of this rank's node
    std::vector<int> node_sizes;  ///< ranks on each node

    int nodes() const { return static_cast<int>(node_sizes.size()); }
    /// All nodes have as many ranks: what lanes need.
    bool equal_nodes() const;
    /// For example "4 ranks on 2 nodes (2 + 2)".
    std::string describe() const;
};

/// Finds the nodes of `ranks` by shared memory, or calls each `ranks_per_node` consecutive ranks a
/// node when that is positive (emulated nodes: they still must share memory). Collective.
Topology find_topology(const Group& ranks, int ranks_per_node);

/// How a shard group uses its nodes: `node` holds the unsharded units once and sums locally, `lane`
/// joins the ranks of equal local rank over the nodes. Every rank is in one node and one lane;
/// rank in the group = lane rank * node size + node rank.
struct NodeLanes {
    Group node;
    Group lane;
};

/// The world as shard groups of consecutive ranks, the replicas of one another:
/// world rank = replica * size of a group + rank in the group.
struct Mesh {
    Group shard_group;  ///< the ranks that share one copy of the state
    Group replicas;     ///< the ranks that hold the same shard, one of each group
    NodeLanes lanes;    ///< of the shard group
};

/// `group_size` must divide the number of ranks (LogicError). Lanes where `node_shared` and the
/// group has as many ranks on each of its nodes; otherwise the flat plan, in which every rank is a
/// node of its own and the one lane is the group. Collective over the world.
Mesh make_mesh(const Topology& topology, int group_size, bool node_shared);

/// Consecutive ranks of `lane` in groups of `size`, which divides the lane's. Collective over it.
Group split_lane(const Group& lane, int size);

}  // namespace fullshard::comm
