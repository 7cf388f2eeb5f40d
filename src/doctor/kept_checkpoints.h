// How many checkpoints the disk must have room for.
#pragma once

#include "config/deck.h"

#include <cstdint>
#include <filesystem>

namespace fullshard::doctor {

/// Finished checkpoints in a folder of checkpoints; 0 where there is none.
std::int64_t kept_checkpoints(const std::filesystem::path& folder);

/// Checkpoints of a run of `steps` that the disk must still take when it holds `kept` of them: a
/// new one is whole before an old one goes. At least 1, which a run writes when it is asked to
/// stop.
std::int64_t checkpoints_to_come(const config::Checkpoint& keys, std::int64_t steps,
                                 std::int64_t kept);

}  // namespace fullshard::doctor
