// Where a rank stands among nodes, lanes and replicas.
#pragma once

#include "comm/topology.h"

#include <cstdint>

namespace fullshard::shard {

/// Rank in the shard group = lane_rank * node_size + node_rank, and shard r belongs to rank r.
struct Place {
    std::int64_t node_rank = 0;
    std::int64_t node_size = 1;
    std::int64_t lane_rank = 0;
    std::int64_t lane_size = 1;
    std::int64_t replica = 0;
    std::int64_t replicas = 1;

    std::int64_t shard() const { return lane_rank * node_size + node_rank; }
    std::int64_t shards() const { return lane_size * node_size; }
};

inline Place place_of(const comm::Mesh& mesh) {
    return {mesh.lanes.node.rank(), mesh.lanes.node.size(), mesh.lanes.lane.rank(),
            mesh.lanes.lane.size(), mesh.replicas.rank(),   mesh.replicas.size()};
}

}  // namespace fullshard::shard
