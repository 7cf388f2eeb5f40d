// Reads a whole checkpoint and names every damage.
#pragma once

#include "checkpoint/format/workers.h"

#include <filesystem>
#include <functional>
#include <string>

namespace fullshard::checkpoint {

/// Reads and verifies every byte: what open_folder() checks, every block of every tensor, and that
/// HDF5 sees the datasets the manifest lists and no others. Calls `problem` with a sentence for
/// each damage; returns true when there is none.
bool verify_folder(const std::filesystem::path& folder,
                   const std::function<void(const std::string&)>& problem,
                   const ProgressReport& progress, int threads = default_threads());

}  // namespace fullshard::checkpoint
