// Brings a checkpoint's tensors to their places in another file.
#pragma once

#include "checkpoint/export/journal.h"
#include "checkpoint/export/selection.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/workers.h"

#include <span>
#include <vector>

namespace fullshard::checkpoint {

/// Memory that one thread of fill() needs: a block as read and, at most, as written.
inline constexpr std::int64_t kFillBytesPerThread = 2 * kMaxBlockBytes;

struct Filled {
    std::vector<std::uint32_t> crcs;  ///< CRC-32 of each tensor's bytes, where they were wanted
    std::vector<std::int64_t> overflowed;  ///< per tensor: finite values that became infinite
    std::int64_t bytes_found = 0;          ///< written by an earlier attempt
};

/// Reads, verifies, casts and writes block by block in `threads` threads, so that some write while
/// others read. What the journal says of an earlier attempt is read back instead, and written again
/// when it is damaged. Throws DataError for damage of the checkpoint, RunError when writing fails.
Filled fill(CheckpointReader& reader, std::span<const ExportTensor> tensors,
            std::span<const std::int64_t> offsets, const PosixFile& out, Journal& journal,
            bool with_crcs, int threads, SharedProgress& progress);

}  // namespace fullshard::checkpoint
