// Reads element ranges of a checkpoint's tensors, verified.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace fullshard::checkpoint {

/// Whole digest blocks are read and verified, so a range costs at most one block more at either
/// end; the last block that a range used in part is kept, because neighbouring ranges often share
/// one. Without verification exactly the ranges are read. Reads by file offset, without HDF5.
/// Several threads may read.
class CheckpointReader {
  public:
    /// Checks the folder as open_folder() does. Throws DataError naming what is wrong with it.
    explicit CheckpointReader(std::filesystem::path folder);
    /// With a manifest that is known already (one rank read, checked and broadcast it).
    CheckpointReader(std::filesystem::path folder, Manifest manifest, bool verifies = true);
    ~CheckpointReader();
    CheckpointReader(CheckpointReader&&) noexcept;
    CheckpointReader& operator=(CheckpointReader&&) noexcept;

    const Manifest& manifest() const;
    /// Elements [begin, begin + out.size()). Throws DataError naming file, tensor and block for a
    /// bad digest or a short file, and for a tensor or range that does not exist.
    void read(State state, std::string_view parameter, std::int64_t begin, std::span<float> out);
    /// A whole block of one of the manifest's tensors, verified whatever the reader does otherwise,
    /// without a copy. Throws DataError.
    FileMapping map(const TensorEntry& tensor, const Block& block);
    /// Bytes of tensors read so far.
    std::int64_t bytes_read() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace fullshard::checkpoint
