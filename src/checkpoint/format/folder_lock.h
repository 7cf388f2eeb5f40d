// One run at a time writes to a folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace fullshard::checkpoint {

/// Holds `folder/LOCK` while it lives: a lock of the system (flock), which ends with the process
/// however it dies, on a file that says who holds it. For file systems that ignore such locks the
/// file itself is believed where that can be checked: a process of this host that is alive, by its
/// id and start time.
class FolderLock {
  public:
    static constexpr const char* kFile = "LOCK";

    /// Throws UsageError naming host and process that hold the lock, RunError for the system's reason
    /// why there can be none.
    explicit FolderLock(std::filesystem::path folder);
    ~FolderLock();  ///< removes the file
    FolderLock(const FolderLock&) = delete;
    FolderLock& operator=(const FolderLock&) = delete;

    /// Who left the lock behind when it was taken over from a process that is gone.
    const std::optional<std::string>& stale() const { return stale_; }

  private:
    std::filesystem::path path_;
    int descriptor_ = -1;
    std::optional<std::string> stale_;
};

}  // namespace fullshard::checkpoint
