// Numbers of a file as float32.
#pragma once

#include "base/span.h"
#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace fullshard::checkpoint {

/// Adjacent fp32, bf16 or fp16 numbers from `offset` on, taken exactly. Memory is bounded whatever
/// their number. Throws DataError when the file ends before.
void read_values(const PosixFile& file, std::int64_t offset, DType dtype, std::span<float> out);

/// Throws DataError unless [begin, begin + count) lies within a tensor's elements.
void require_range(const PosixFile& file, std::string_view tensor, std::int64_t numel,
                   std::int64_t begin, std::int64_t count);

}  // namespace fullshard::checkpoint
