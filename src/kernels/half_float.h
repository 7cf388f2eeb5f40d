// Half-width numbers to float and back, one value at a time.
#pragma once

#include "base/span.h"

#include <bit>
#include <cstdint>

namespace fullshard::kernels {

// Integer arithmetic only, without branches or tables: loops over these functions become vector
// code on every instruction set, with equal bits, and the flush-to-zero modes of a processor do
// not reach the subnormal numbers of a half.

namespace detail {

constexpr std::uint32_t kSignBit = 0x80000000;
constexpr std::uint32_t kInfinityBits = 0x7f800000;
constexpr std::uint32_t kQuietBit = 0x00400000;

// The smallest power of two that binary16 holds as a normal number, and the first that it does not
// hold any more, as bits of a float.
constexpr std::uint32_t kSmallestNormalFloat16 = (127 - 14) << 23;
constexpr std::uint32_t kBeyondFloat16 = (127 + 16) << 23;

}  // namespace detail

/// The same number: every bfloat16 is a float, its upper half.
constexpr float to_float(BFloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// The nearest bfloat16, ties to even; beyond the largest one, infinity. NaN stays NaN.
constexpr BFloat16 to_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool nan = (bits & ~detail::kSignBit) > detail::kInfinityBits;
    const std::uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    // A NaN whose payload lies in the lower half only must not become infinity.
    return {static_cast<std::uint16_t>((nan ? bits | detail::kQuietBit : rounded) >> 16)};
}

/// The same number: every binary16 is a float.
constexpr float to_float(Float16 value) {
    const auto half = static_cast<std::uint32_t>(value.bits);
    const std::uint32_t magnitude = (half & 0x7fff) << 13;
    const std::uint32_t normal = magnitude + ((127 - 15) << 23);
    const std::uint32_t non_finite = magnitude + ((255 - 31) << 23);
    // A subnormal has no hidden bit: put one there and subtract it as a float, which is exact.
    const float subnormal = std::bit_cast<float>(magnitude + detail::kSmallestNormalFloat16) -
                            std::bit_cast<float>(detail::kSmallestNormalFloat16);
    std::uint32_t bits = normal;
    bits = magnitude >= (31u << 23) ? non_finite : bits;
    bits = magnitude < (1u << 23) ? std::bit_cast<std::uint32_t>(subnormal) : bits;
    return std::bit_cast<float>(bits | (half & 0x8000) << 16);
}

/// The nearest binary16, ties to even; from 65520 on, halfway beyond the largest one, infinity.
/// NaN stays NaN.
constexpr Float16 to_float16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & ~detail::kSignBit;
    // Rounding may carry into the exponent, and from the largest exponent to infinity.
    const std::uint32_t normal =
        (magnitude - ((127 - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // The last bit of a float in [0.5, 1) weighs what the last bit of a subnormal half weighs:
    // adding 0.5 makes the addition of floats round to it.
    constexpr std::uint32_t kHalf = (127 - 1) << 23;
    const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) +
                                                                 std::bit_cast<float>(kHalf)) -
                                    kHalf;
    const std::uint32_t non_finite = magnitude > detail::kInfinityBits ? 0x7e00 : 0x7c00;
    std::uint32_t half = normal;
    half = magnitude < detail::kSmallestNormalFloat16 ? subnormal : half;
    half = magnitude >= detail::kBeyondFloat16 ? non_finite : half;
    return {static_cast<std::uint16_t>(half | ((bits & detail::kSignBit) >> 16))};
}

}  // namespace fullshard::kernels
