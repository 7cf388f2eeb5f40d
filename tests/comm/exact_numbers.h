// Contributions of ranks whose sums are exact in every type.
#pragma once

#include "kernels/half_float.h"

#include <cstdint>
#include <type_traits>

namespace fullshard::testing {

/// Small integers: their sums over ranks are exact in every type, so that the order of summation,
/// which is NCCL's own, does not show.
inline int contribution(int rank, std::int64_t index) {
    return (rank + 1) * static_cast<int>(1 + index % 5);
}
inline int sum_over(int ranks, std::int64_t index) {
    return ranks * (ranks + 1) / 2 * static_cast<int>(1 + index % 5);
}

template <typename T>
T number(int value) {
    if constexpr (std::is_same_v<T, BFloat16>) {
        return kernels::to_bfloat16(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, Float16>) {
        return kernels::to_float16(static_cast<float>(value));
    } else {
        return static_cast<T>(value);
    }
}
template <typename T>
int integer(T value) {
    if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
        return static_cast<int>(kernels::to_float(value));
    } else {
        return static_cast<int>(value);
    }
}

}  // namespace fullshard::testing
