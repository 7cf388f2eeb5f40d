// Where a rank stands among nodes and lanes.
#pragma once

#include "comm/topology.h"

#include <cstdint>

namespace fullshard::shard {

/// Where this rank stands: rank = lane_rank * node_size + node_rank. Shard r belongs to rank r.
struct Place {
    std::int64_t node_rank = 0;
    std::int64_t node_size = 1;
    std::int64_t lane_rank = 0;
    std::int64_t lane_size = 1;

    std::int64_t shard() const { return lane_rank * node_size + node_rank; }
    std::int64_t shards() const { return lane_size * node_size; }
};

inline Place place_of(const comm::NodeLanes& lanes) {
    return {lanes.node.rank(), lanes.node.size(), lanes.lane.rank(), lanes.lane.size()};
}

}  // namespace fullshard::shard
