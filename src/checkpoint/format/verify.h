// Reads a whole checkpoint and names every damage.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace fullshard::checkpoint {

/// Called with bytes done and total, at least once a 4 MiB block. May be empty.
using ProgressReport = std::function<void(std::int64_t done, std::int64_t total)>;

/// Reads and verifies every byte: what open_folder() checks, every block of every tensor, and that
/// HDF5 sees the datasets the manifest lists and no others. Calls `problem` with a sentence for
/// each damage; returns true when there is none.
bool verify_folder(const std::filesystem::path& folder,
                   const std::function<void(const std::string&)>& problem,
                   const ProgressReport& progress);

}  // namespace fullshard::checkpoint
