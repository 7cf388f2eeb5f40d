#include "comm/topology.h"

#include "base/error.h"
#include "comm/agree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

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
        const int on_this_host = topology.node.split(node, ranks.rank()).size();
        topology.node = ranks.split(node, ranks.rank());
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
    topology.world = ranks.split(0, topology.node_index);
    return topology;
}

NodeLanes make_lanes(const Topology& topology, bool node_shared) {
    if (!node_shared || !topology.equal_nodes()) {
        return {Group::self(topology.world.timeout_s()), topology.world};
    }
    return {topology.node, topology.world.split(topology.node.rank(), topology.node_index)};
}

}  // namespace fullshard::comm
