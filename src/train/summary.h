// What a run says at its start and at its end: predicted beside measured.
#pragma once

#include "base/log.h"
#include "comm/group.h"
#include "shard/unit_store.h"
#include "train/phases.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace fullshard::train {

/// A table of items with right-aligned numbers, one line each.
void log_memory(Log& log, const std::vector<shard::Allocation>& plan,
                const std::vector<shard::Allocation>& allocated);
void log_traffic(Log& log, const shard::Traffic& predicted, const shard::Traffic& counted);

/// Minimum, mean and maximum over ranks of each phase's seconds.
struct PhaseStatistics {
    std::array<double, kPhases> min{};
    std::array<double, kPhases> mean{};
    std::array<double, kPhases> max{};
};
/// Collective.
PhaseStatistics gather_phases(const std::array<double, kPhases>& mine, const comm::Group& world);
void log_phases(Log& log, const PhaseStatistics& phases);

nlohmann::ordered_json to_json(const std::vector<shard::Allocation>& items);
nlohmann::ordered_json to_json(const shard::Traffic& traffic);
nlohmann::ordered_json to_json(const PhaseStatistics& phases);

}  // namespace fullshard::train
