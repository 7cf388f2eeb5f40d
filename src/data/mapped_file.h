// Files of any size, read where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace fullshard::data {

/// A whole file in memory, read only. A file that is cut while it is mapped ends the process when
/// the missing part is read.
class MappedFile {
  public:
    /// Throws DataError naming the path and the system's reason.
    explicit MappedFile(std::filesystem::path path);
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&&) = delete;

    const std::filesystem::path& path() const { return path_; }
    std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size()); }
    std::span<const std::byte> bytes() const { return bytes_; }
    /// Bytes [first, first + count). Throws DataError naming path, range and size when the file is
    /// shorter; any values are allowed.
    std::span<const std::byte> bytes(std::int64_t first, std::int64_t count) const;

  private:
    std::filesystem::path path_;
    std::span<const std::byte> bytes_;
};

}  // namespace fullshard::data
