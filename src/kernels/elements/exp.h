// The exponential function for loops that become vector code.
#pragma once

#include <bit>
#include <cstdint>

namespace fullshard::kernels {

/// The range of vector_exp(): beyond it the result, or a step on the way, is no normal number.
inline constexpr float kExpRange = 87.3f;

/// e^x for |x| <= kExpRange, to 1.5 units in the last place; NaN for NaN. Additions and
/// multiplications only, so that every instruction set gives equal bits.
///
/// x = n ln 2 + r with |r| <= ln(2) / 2; e^r is the polynomial of Cephes' expf (S. Moshier).
[[gnu::always_inline]] constexpr float vector_exp(float x) {
    // Adding it rounds to an integer, which is then in the low bits.
    constexpr float kRound = 0x1.8p23f;
    const float shifted = x * 0x1.715476p+0f + kRound;
    const float n = shifted - kRound;
    // The high part of ln 2 has 9 bits: its product with n is exact.
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) +
                                             std::bit_cast<std::uint32_t>(1.0f));
    return (p * (r * r) + r + 1.0f) * power;
}

}  // namespace fullshard::kernels
