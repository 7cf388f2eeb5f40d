// HDF5 files of contiguous datasets.
#pragma once

#include "base/span.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// An open HDF5 file of floating-point datasets: float32, and bfloat16 or binary16 in files made for
/// other programs. Ranges are elements in row-major order. Errors name file,
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

    /// Shape of a dataset whose values lie in this file. Throws DataError when it is missing or
    /// another kind of dataset.
    std::vector<std::int64_t> shape(const std::string& dataset) const;
    /// Element type as stored; throws as shape() does.
    DType dtype(const std::string& dataset) const;
    /// Where the raw data of a contiguous dataset begins; nothing for other layouts.
    std::optional<std::int64_t> file_offset(const std::string& dataset) const;
    /// Exact for every element type. Throws DataError, for a range outside of the dataset too.
    void read(const std::string& dataset, std::int64_t begin, std::span<float> out) const;
    /// To a float32 dataset: independent, in calls of at most `max_call_bytes`. Throws RunError.
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
