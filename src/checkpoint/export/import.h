// Weights of other programs as a checkpoint.
#pragma once

#include "checkpoint/format/workers.h"

#include <filesystem>

namespace fullshard::checkpoint {

struct ImportOptions {
    bool overwrite = false;  ///< the folder's checkpoint of step 0 is replaced
    ProgressReport progress = {};
};

/// Writes what open_weights() reads from `source` as the checkpoint of step 0 in `parent`, a run's
/// folder of checkpoints: float32 weights without moments, as has_moments() knows them, so that
/// training begins with zero ones. Returns its folder, which appears whole or not at all. Memory is
/// bounded by a block for each thread. Throws UsageError when `parent` holds a checkpoint of step 0
/// already or a tensor's name is impossible, DataError for a damaged source, RunError when writing
/// fails.
std::filesystem::path import_weights(const std::filesystem::path& source,
                                     const std::filesystem::path& parent,
                                     const ImportOptions& options = {});

}  // namespace fullshard::checkpoint
