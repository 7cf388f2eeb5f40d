// The files of a checkpoint that hold tensors: how they are laid out, and their raw bytes.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// Makes each tensor one part of file 0, without an offset.
void place_in_one_file(std::span<TensorEntry> tensors);

/// Elements of a tensor that one writer holds, and the file they go to.
struct Holding {
    std::int64_t tensor = 0;  ///< index
    std::int64_t file = 0;
    std::int64_t begin = 0;
    std::int64_t count = 0;
};
/// Sets the tensors' parts, without offsets, from what the writers hold: neighbours of one file are
/// one part.
void place_by_holder(std::span<TensorEntry> tensors, std::vector<Holding> holdings);

/// Where an element lies in the dataset of its file.
std::int64_t index_in_dataset(const TensorEntry& tensor, std::int64_t element);

/// Creates file number `file` of the `count` that the parts name, with a dataset for each tensor
/// that has parts there, allocated and not written, claims its space on disk, closes it for those
/// who write and sync the data, and sets `file_offset` of these parts. A file on its own has
/// datasets of the tensors' shapes, one of several has one-dimensional ones: a tensor's parts in
/// ascending order. Datasets lie and are listed in the order of `tensors`. Serial driver; one
/// process. Throws RunError with HDF5's reason, or when the disk has not enough space.
void create_state_file(const std::filesystem::path& folder, std::span<TensorEntry> tensors,
                       std::int64_t file = 0, std::int64_t count = 1);

/// Creates index.h5 beside `count` files: virtual datasets of the tensors' shapes, for people. A
/// source that is missing reads as NaN. Throws RunError.
void create_index_file(const std::filesystem::path& folder, std::span<const TensorEntry> tensors,
                       std::int64_t count);

/// Size and structure digest of file number `file` of a checkpoint. Its parts must not overlap.
/// Throws DataError when the file ends before the last of them.
FileEntry read_structure(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                         std::int64_t file = 0);

/// The files of a checkpoint's folder, opened when they are needed. Several threads may open.
class DataFiles {
  public:
    DataFiles(std::filesystem::path folder, std::span<const FileEntry> files);

    /// `file` is an index in Manifest::files. Throws DataError.
    std::shared_ptr<const PosixFile> open(std::int64_t file);

  private:
    std::filesystem::path folder_;
    std::vector<std::string> names_;
    struct Open {
        std::int64_t file = 0;
        std::shared_ptr<const PosixFile> handle;
    };
    std::mutex mutex_;
    std::vector<Open> open_;  ///< a bounded number, oldest first: nodes may be many
};

}  // namespace fullshard::checkpoint
