// state.h5: full-shape contiguous datasets of float32.
#pragma once

#include "checkpoint/format/manifest.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// Creates the file with every dataset allocated and nothing written (contiguous layout, early
/// allocation, fill never), claims its space on disk, closes and syncs it, and sets `file_offset`
/// of each tensor from H5Dget_offset. Datasets lie and are listed in the order of `tensors`. Serial
/// driver; one process. Throws RunError with HDF5's reason, or when the disk has not enough space.
void create_state_file(const std::filesystem::path& path, std::vector<TensorEntry>& tensors);

/// Size of the file and digest of all its bytes that belong to no tensor, in order.
struct Structure {
    std::int64_t file_bytes = 0;
    std::uint64_t digest = 0;
};
/// The tensors must not overlap. Throws DataError when the file ends before the last of them.
Structure read_structure(const std::filesystem::path& path, std::span<const TensorEntry> tensors);

/// An open HDF5 file of float32 datasets. Ranges are elements in row-major order. Errors name file,
/// dataset and HDF5's reason. One thread of a process at a time: HDF5 is usually built without
/// locks.
class StateFile {
  public:
    /// Independent calls of 2 GiB and more fail in HDF5 1.10 through MPI-IO.
    static constexpr std::int64_t kMaxCallBytes = std::int64_t{512} << 20;

    /// Opens for reading with the serial driver. Throws DataError.
    static StateFile open(const std::filesystem::path& path);
    /// Opens an existing file for writing with the serial driver. Throws RunError.
    static StateFile open_to_write(const std::filesystem::path& path);
    /// Takes over an open HDF5 file identifier (parallel writers open it themselves).
    explicit StateFile(std::int64_t hdf5_file);
    ~StateFile();
    StateFile(StateFile&&) noexcept;
    StateFile& operator=(StateFile&&) noexcept;

    /// Shape of a float32 dataset whose values lie in this file. Throws DataError when it is
    /// missing or another kind of dataset.
    std::vector<std::int64_t> shape(const std::string& dataset) const;
    /// Where the raw data of a contiguous dataset begins; nothing for other layouts.
    std::optional<std::int64_t> file_offset(const std::string& dataset) const;
    /// Throws DataError, for a range outside of the dataset too.
    void read(const std::string& dataset, std::int64_t begin, std::span<float> out) const;
    /// Independent, in calls of at most `max_call_bytes`. Throws RunError.
    void write(const std::string& dataset, std::int64_t begin, std::span<const float> values,
               std::int64_t max_call_bytes = kMaxCallBytes) const;
    /// Full paths of all datasets, sorted.
    std::vector<std::string> datasets() const;
    /// Closes; throws RunError when HDF5 reports that data could not be written.
    void close();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fullshard::checkpoint
