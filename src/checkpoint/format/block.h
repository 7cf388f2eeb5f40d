// A tensor's digest blocks.
#pragma once

#include "checkpoint/format/data_files.h"
#include "checkpoint/format/manifest.h"

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::checkpoint {

/// The blocks of a range that one writer holds: elements [begin, begin + values.size()), digested
/// from memory and not from what was written, so that damage on the way to the disk shows.
std::vector<Block> digest_blocks(std::int64_t begin, std::span<const float> values,
                                 std::int64_t max_block_bytes = kMaxBlockBytes);

/// A verified block without a copy of it. Throws as read_block().
FileMapping map_block(DataFiles& files, const TensorEntry& tensor, const Block& block);

/// Reads a whole block into `out`, which has the block's length, and compares its digest. Throws
/// DataError naming file, tensor and elements when the file is too short or the bytes are other
/// ones.
void read_block(DataFiles& files, const TensorEntry& tensor, const Block& block,
                std::span<float> out);

}  // namespace fullshard::checkpoint
