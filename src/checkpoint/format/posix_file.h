// Files by descriptor: positioned reads, appended writes, durable renames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace fullshard::checkpoint {

/// An open file or folder, closed on every path. Errors name the path, the call and the system's
/// reason.
class PosixFile {
  public:
    /// For reading. Throws DataError.
    static PosixFile open(const std::filesystem::path& path);
    /// Empty, for writing; an existing file is cut. Throws RunError.
    static PosixFile create(const std::filesystem::path& path);
    /// An existing file for writing, or a folder for sync(). Throws RunError.
    static PosixFile open_to_sync(const std::filesystem::path& path);
    ~PosixFile();
    PosixFile(PosixFile&& other) noexcept;
    PosixFile& operator=(PosixFile&& other) noexcept;

    const std::filesystem::path& path() const { return path_; }
    std::int64_t size() const;
    /// Fills `out` from `offset` on. Throws DataError when the file ends before or cannot be read.
    void read(std::int64_t offset, std::span<std::byte> out) const;
    /// Appends. Throws RunError.
    void write(std::span<const std::byte> bytes);
    /// Claims disk space for `bytes` from the file's start where the file system can, so that a
    /// full disk is found before the work. Throws RunError when there is not enough.
    void reserve(std::int64_t bytes) const;
    /// To disk. Throws RunError.
    void sync() const;
    /// Closes; throws RunError when the system reports a late write error (network file systems
    /// do).
    void close();

  private:
    PosixFile(std::filesystem::path path, int descriptor);
    template <typename ErrorType>
    [[noreturn]] void fail(const char* call) const;

    std::filesystem::path path_;
    int descriptor_ = -1;
};

/// Renames and throws RunError naming both paths on failure.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// Makes renames and new files within `folder` durable.
void sync_folder(const std::filesystem::path& folder);

}  // namespace fullshard::checkpoint
