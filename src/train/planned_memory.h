// Where a run's memory will be, and whether there is enough of it.
#pragma once

#include "device/device.h"
#include "train/memory_usage.h"
#include "train/sharding_plan.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

/// Bytes.
struct PlannedMemory {
    ShardingPlan::MemorySums host;
    std::int64_t device = 0;  ///< of each rank on its device
};

/// The plan's, which is of a device where one computes, and for each rank on its host the copy that
/// saves in the background make. `most_ranks` are on the largest node.
PlannedMemory planned_memory(const ShardingPlan::MemorySums& plan, std::int64_t checkpoint_copy,
                             int most_ranks, bool on_device);

/// What there is for it: node and device of this rank.
struct PresentMemory {
    NodeMemory node;
    std::optional<device::MemoryInfo> device = std::nullopt;  ///< none on the CPU
};

/// Planned beside present, in a line.
std::string memory_text(const PlannedMemory& planned, const PresentMemory& present);

/// Sentences with remedies where the plan alone takes more than nine tenths of what there is.
std::vector<std::string> memory_warnings(const PlannedMemory& planned,
                                         const PresentMemory& present);

}  // namespace fullshard::train
