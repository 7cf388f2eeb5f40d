// The first screen of a run: what runs where, with what, and what is odd about it.
#pragma once

#include "base/log.h"
#include "train/launch_info.h"
#include "train/sharded_model.h"
#include "train/start.h"
#include "train/throughput.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fullshard::train {

/// A run that is set up and about to train.
struct RunSetup {
    const Start& start;
    const ShardedModel& sharded;
    const LaunchInfo& launch;
    Peak peak;
    std::int64_t checkpoint_copy = 0;        ///< bytes of each rank, for saves in the background
    std::int64_t start_number = 1;           ///< in this run folder
    std::vector<std::string> warnings = {};  ///< also those of warnings_of()
};

/// How many starts of a run `log` tells of; 0 when there is no such file. Throws DataError when it
/// cannot be read.
std::int64_t starts_in(const std::filesystem::path& log);

/// A sentence with a remedy for each thing about launch, libraries, memory and deck that is legal
/// but seldom meant.
std::vector<std::string> warnings_of(const RunSetup& setup);

/// Writes the first screen to the log, warnings last. Not collective.
void announce(const RunSetup& setup, Log& log);

/// The same for programs: the record "run". Equal for equal runs, whenever they start.
nlohmann::ordered_json run_record(const RunSetup& setup);

/// What differs from one start to the next: the event "start".
nlohmann::ordered_json start_event(const RunSetup& setup);

}  // namespace fullshard::train
