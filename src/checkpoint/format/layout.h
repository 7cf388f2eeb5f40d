// Lays out HDF5 files whose bytes are written later.
#pragma once

#include "base/span.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// A dataset to be: its full path, its shape (empty: a scalar), of which HDF5 takes at most 32
/// extents, and the floating-point type of its elements.
struct DatasetShape {
    std::string path;
    std::vector<std::int64_t> shape;
    DType dtype = DType::kFloat32;
};

/// Creates `file` with little-endian datasets, in this order, contiguous and allocated but
/// not written, and claims its space on disk; whoever writes the data syncs it all. Returns where
/// each one's raw data begins. Equal input gives equal bytes: no times are stored. Throws RunError
/// with HDF5's or the system's reason.
std::vector<std::int64_t> lay_out(const std::filesystem::path& file,
                                  std::span<const DatasetShape> datasets);

/// A dataset whose values are pieces of one-dimensional datasets of the same path in other files.
struct ViewShape {
    struct Piece {
        std::string file;  ///< beside the file of the view
        std::int64_t source_length = 0;
        std::int64_t source_begin = 0;
        std::int64_t begin = 0;  ///< element of the view, row-major
        std::int64_t count = 0;
    };
    DatasetShape dataset;
    std::vector<Piece> pieces;
};

/// Creates and syncs `file` with virtual datasets, in this order. Elements without a source, or
/// with one that is missing, read as NaN. Throws RunError.
void lay_out_views(const std::filesystem::path& file, std::span<const ViewShape> views);

}  // namespace fullshard::checkpoint
