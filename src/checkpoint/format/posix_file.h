// Files by descriptor: positioned reads, appended writes, durable renames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace fullshard::checkpoint {

/// A range of a file in memory, for reading. A disk that fails while the memory is read, or a file
/// that is cut, ends the process: map what is finished and only read once.
class FileMapping {
  public:
    FileMapping(std::byte* base, std::size_t length, std::size_t skip)
        : base_(base), length_(length), skip_(skip) {}
    FileMapping(FileMapping&& other) noexcept;
    FileMapping& operator=(FileMapping&&) = delete;
    ~FileMapping();

    std::span<const std::byte> bytes() const { return {base_ + skip_, length_ - skip_}; }

  private:
    std::byte* base_;     ///< where a page begins
    std::size_t length_;  ///< from there to the end of the range
    std::size_t skip_;    ///< before the range
};

/// An open file or folder, closed on every path. Errors name the path, the call and the system's
/// reason.
class PosixFile {
  public:
    /// For reading. Throws DataError.
    static PosixFile open(const std::filesystem::path& path);
    /// Empty, for writing; an existing file is cut. Throws RunError.
    static PosixFile create(const std::filesystem::path& path);
    /// For reading and writing: an existing file as it is, or a new one. Throws RunError.
    static PosixFile open_to_update(const std::filesystem::path& path);
    /// An existing file for writing, or a folder for sync(). Throws RunError.
    static PosixFile open_to_write(const std::filesystem::path& path);
    ~PosixFile();
    PosixFile(PosixFile&& other) noexcept;
    PosixFile& operator=(PosixFile&& other) noexcept;

    const std::filesystem::path& path() const { return path_; }
    std::int64_t size() const;
    /// Fills `out` from `offset` on. Throws DataError when the file ends before or cannot be read.
    void read(std::int64_t offset, std::span<std::byte> out) const;
    /// The same bytes without a copy. Throws DataError when the file ends before.
    FileMapping map(std::int64_t offset, std::int64_t bytes) const;
    /// Appends. Throws RunError.
    void write(std::span<const std::byte> bytes);
    /// From `offset` on, whatever was there. Throws RunError.
    void write_at(std::int64_t offset, std::span<const std::byte> bytes) const;
    /// Cuts or extends. Throws RunError.
    void truncate(std::int64_t bytes) const;
    /// Asks the system to bring a range to disk while the program goes on, so that a later sync()
    /// finds little left to do. Not every file system listens.
    void start_writeback(std::int64_t offset, std::int64_t bytes) const;
    /// Waits until such a range has reached the disk, and gives up the memory that held it. Throws
    /// RunError when the disk refuses it; success promises nothing, only sync() does.
    void finish_writeback(std::int64_t offset, std::int64_t bytes) const;
    /// Claims disk space for `bytes` from the file's start where the file system can, so that a
    /// full disk is found before the work. Throws RunError when there is not enough.
    void reserve(std::int64_t bytes) const;
    /// Keeps other processes from locking the file until this object or the process ends; false
    /// when another one has done so. Where the file system knows no locks, always true.
    bool lock() const;
    /// To disk. Throws RunError.
    void sync() const;
    /// The same, as far as the data needs it. Throws RunError.
    void sync_data() const;
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
