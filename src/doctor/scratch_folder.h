// A folder for the checks beside a run's files, gone afterwards.
#pragma once

#include "comm/group.h"

#include <filesystem>

namespace fullshard::doctor {

/// Made by rank 0 in `run_dir`, or in the nearest folder above it that exists: nothing else is
/// created. Removed by rank 0 with all that is in it.
class ScratchFolder {
  public:
    /// Throws AgreedError with the system's reason. Collective.
    ScratchFolder(const comm::Group& world, const std::filesystem::path& run_dir);
    ~ScratchFolder();
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    /// Absolute, the same on all ranks.
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
    bool owner_;
};

}  // namespace fullshard::doctor
