// Rounding of sizes.
#pragma once

#include <cstdint>

namespace fullshard {

/// The smallest multiple of `multiple` (positive) that is not below `value` (not negative).
constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace fullshard
