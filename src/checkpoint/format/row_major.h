// Element ranges of row-major tensors as boxes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace fullshard::checkpoint {

/// Bytes of a float32 element, the only type of tensor in a checkpoint.
inline constexpr std::int64_t kElementBytes = 4;

/// Number of elements of a shape known to be sound; 1 for a scalar's empty shape.
std::int64_t numel(std::span<const std::int64_t> shape);

/// The same for a shape read from a file: nothing when an extent is below 1 or the number of bytes
/// does not fit 63 bits.
std::optional<std::int64_t> checked_numel(std::span<const std::int64_t> shape);

/// A box of indices whose elements are adjacent in row-major order.
struct Box {
    std::vector<std::int64_t> start;
    std::vector<std::int64_t> extent;
    std::int64_t count = 0;  ///< elements

    friend bool operator==(const Box&, const Box&) = default;
};

/// Cuts elements [begin, begin + count) of a tensor of `shape` into boxes in row-major order: at
/// most 2n - 1 for n dimensions (head, whole rows, tail at each level). A range outside is a
/// LogicError.
std::vector<Box> boxes_of_range(std::span<const std::int64_t> shape, std::int64_t begin,
                                std::int64_t count);

}  // namespace fullshard::checkpoint
