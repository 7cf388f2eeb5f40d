// Rounding to bf16 by chance, with random numbers that belong to elements.
#pragma once

#include "base/philox.h"
#include "base/span.h"
#include "kernels/half_float.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace fullshard::kernels {

/// `value` or its other neighbour among bf16 numbers: the one of larger magnitude with probability
/// dropped bits / 2^16, for `random` uniform in [0, 2^16). Numbers of bf16, infinities and NaNs
/// stay what they are; beyond the largest number that is infinity.
constexpr BFloat16 round_stochastic(float value, std::uint32_t random) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool nan = (bits & ~detail::kSignBit) > detail::kInfinityBits;
    return {static_cast<std::uint16_t>((nan ? bits | detail::kQuietBit : bits + random) >> 16)};
}

/// 16 random bits for each of the elements [first, first + kCount). Element e has the upper half of
/// word e mod 4 of Philox block e / 4 under `key`.
template <std::size_t kCount>
constexpr std::array<std::uint32_t, kCount> rounding_bits(std::uint64_t key, std::uint64_t first) {
    std::array<std::uint32_t, kCount> bits{};
    std::array<std::uint32_t, 4> block{};
    for (std::size_t i = 0; i < kCount; ++i) {
        const std::uint64_t element = first + i;
        if (i == 0 || element % 4 == 0) {
            const std::uint64_t number = element / 4;
            block = philox4x32(
                {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0,
                 0},
                {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
        }
        // Choices, not an index: CUDA keeps an indexed array in memory.
        const std::uint32_t even = (element & 2) != 0 ? block[2] : block[0];
        const std::uint32_t odd = (element & 2) != 0 ? block[3] : block[1];
        bits[i] = ((element & 1) != 0 ? odd : even) >> 16;
    }
    return bits;
}

}  // namespace fullshard::kernels
