// Element ranges of our tensors from tensors whose elements lie elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace fullshard::checkpoint {

/// Reads elements of their tensor from `first` on.
using ReadTheirs = std::function<void(std::int64_t first, std::span<float> values)>;

/// Elements that are adjacent in the transposed tensor: one of its columns, as far as a range of
/// ours has it.
struct Strip {
    std::int64_t theirs = 0;    ///< first element in the transposed tensor
    std::int64_t in_range = 0;  ///< of that element, from the range's first on
    std::int64_t stride = 0;    ///< from one element to the next, in the range
    std::int64_t count = 0;
};

/// Calls `visit` with the strips that make up elements [begin, begin + count) of our tensor of
/// `shape`, [rows, columns], in the order of the transposed one.
void for_each_strip(std::span<const std::int64_t> shape, std::int64_t begin, std::int64_t count,
                    const std::function<void(const Strip&)>& visit);

// All functions below give elements [begin, begin + out.size()) of our tensor, row-major; `shape`
// is ours, [rows, columns].

/// Theirs is [columns, rows]: one read for each of the columns that the range touches, of as many
/// elements as the range has rows.
void read_transposed(const ReadTheirs& read, std::span<const std::int64_t> shape,
                     std::int64_t begin, std::span<float> out);

/// Rows of theirs are interleaved as Arrangement::kRotaryRows says: one read for each row.
void read_rotary_rows(const ReadTheirs& read, std::span<const std::int64_t> shape,
                      std::int64_t head_size, std::int64_t begin, std::span<float> out);

/// Elements from `end` on are zero and not read.
void read_padded(const ReadTheirs& read, std::int64_t end, std::int64_t begin,
                 std::span<float> out);

}  // namespace fullshard::checkpoint
