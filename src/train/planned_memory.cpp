#include "train/planned_memory.h"

#include "train/text.h"

#include <fmt/format.h>

#include <string_view>

namespace fullshard::train {

namespace {

constexpr std::string_view kOnTop = "activations and libraries come on top";

bool too_much(std::int64_t planned, std::int64_t total) {
    return total > 0 && planned > total / 10 * 9;
}

}  // namespace

PlannedMemory planned_memory(const ShardingPlan::MemorySums& plan, std::int64_t checkpoint_copy,
                             int most_ranks, bool on_device) {
    PlannedMemory planned;
    if (on_device) {
        planned.device = plan.rank;
    } else {
        planned.host = plan;
    }
    planned.host.rank += checkpoint_copy;
    planned.host.node += most_ranks * checkpoint_copy;
    return planned;
}

std::string memory_text(const PlannedMemory& planned, const PresentMemory& present) {
    const auto& host = planned.host;
    if (present.device) {
        const std::string copies =
            host.node == 0
                ? ""
                : fmt::format(", {} a node for copies of checkpoints", bytes_text(host.node));
        return fmt::format(
            "memory planned: {} on the device of a rank, which has {} ({} free by now){}; {}",
            bytes_text(planned.device), bytes_text(present.device->total_bytes),
            bytes_text(present.device->free_bytes), copies, kOnTop);
    }
    const std::string shared = host.node_shared == 0 ? ""
                                                     : fmt::format(" and {} that ranks share",
                                                                   bytes_text(host.node_shared));
    return fmt::format(
        "memory planned: {} a rank{}, {} a node, which has {} ({} available by now); {}",
        bytes_text(host.rank), shared, bytes_text(host.node), bytes_text(present.node.total),
        bytes_text(present.node.available), kOnTop);
}

std::vector<std::string> memory_warnings(const PlannedMemory& planned,
                                         const PresentMemory& present) {
    std::vector<std::string> warnings;
    if (present.device && too_much(planned.device, present.device->total_bytes)) {
        warnings.push_back(
            fmt::format("the plan needs {} on a device that has {}: use more ranks, a "
                        "strategy that shards more, or fewer shard.slots",
                        bytes_text(planned.device), bytes_text(present.device->total_bytes)));
    }
    if (too_much(planned.host.node, present.node.total)) {
        warnings.push_back(
            fmt::format("the plan needs {} on a node that has {}: use more nodes, {}",
                        bytes_text(planned.host.node), bytes_text(present.node.total),
                        present.device ? "or set checkpoint.async = off"
                                       : "a strategy that shards more, or fewer shard.slots"));
    }
    return warnings;
}

}  // namespace fullshard::train
