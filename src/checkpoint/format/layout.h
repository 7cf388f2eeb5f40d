// Lays out HDF5 files whose bytes are written later.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// A dataset to be: its full path and its shape (empty: a scalar), of which HDF5 takes at most 32
/// extents.
struct DatasetShape {
    std::string path;
    std::vector<std::int64_t> shape;
};

/// Creates `file` with little-endian float32 datasets, in this order, contiguous and allocated but
/// not written, and claims its space on disk. Returns where each one's raw data begins. Equal input
/// gives equal bytes: no times are stored. Throws RunError with HDF5's or the system's reason.
std::vector<std::int64_t> lay_out(const std::filesystem::path& file,
                                  std::span<const DatasetShape> datasets);

}  // namespace fullshard::checkpoint
