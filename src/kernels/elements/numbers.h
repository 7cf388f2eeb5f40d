// Element types to float and back by one name, for code that is written once for all of them.
#pragma once

#include "kernels/half_float.h"

namespace fullshard::kernels {

constexpr float to_float(float value) {
    return value;
}

/// `value` rounded to T, to nearest, ties to even.
template <typename T>
constexpr T from_float(float value);
template <>
constexpr float from_float<float>(float value) {
    return value;
}
template <>
constexpr BFloat16 from_float<BFloat16>(float value) {
    return to_bfloat16(value);
}
template <>
constexpr Float16 from_float<Float16>(float value) {
    return to_float16(value);
}

}  // namespace fullshard::kernels
