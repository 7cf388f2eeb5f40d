// One thread's part of an exact sum of squares (kernels/square_sum.h), in registers.
#pragma once

#include "kernels/elements/host_device.h"
#include "kernels/square_sum.h"

#include <bit>
#include <cstdint>

namespace fullshard::kernels {

/// Adding every square to bins in memory would make threads wait for each other: gradients share
/// few exponents, hence few bins. A window instead holds the sum of squares of numbers from
/// 2^bottom to 2^(bottom + kSpan + 1) as an integer of 128 bits in units of its lowest bit. Only
/// what leaves the window, and the window's own sum once it moves, go to bins; with 25 binades
/// that is rare.
///
/// `add_to_bin(bin, amount)` adds an amount below 2^32 to a bin of SquareSum::bins().
class SquareWindow {
  public:
    /// Binades above the lowest one. A square then has at most 2 (24 + kSpan) = 96 bits, so that
    /// 2^32 of them fit.
    static constexpr std::uint32_t kSpan = 24;
    /// Binades that are free above the largest number that a window is laid around.
    static constexpr std::uint32_t kRoom = 4;

    /// Lays the empty window around numbers of which the largest is `value` in magnitude.
    FULLSHARD_HOST_DEVICE void place(float value) {
        const std::uint32_t top = binade_of(biased_exponent(value)) + kRoom;
        bottom_ = top > kSpan ? top - kSpan : 0;
    }

    template <typename AddToBin>
    FULLSHARD_HOST_DEVICE void add(float value, const AddToBin& add_to_bin) {
        const std::uint32_t exponent = biased_exponent(value);
        const std::uint32_t fraction = std::bit_cast<std::uint32_t>(value) & 0x7fffff;
        const std::uint32_t mantissa = exponent == 0 ? fraction : fraction | 0x800000;
        if (mantissa == 0) return;
        const std::uint32_t binade = binade_of(exponent);
        // A binade below the bottom wraps around to a large number; that of NaN and infinity may be
        // in the window.
        if (binade - bottom_ > kSpan || exponent == kNonFinite) {
            if (exponent == kNonFinite) {
                add_to_bin(SquareSum::kWeightBins + (fraction == 0 ? 0 : 1), 1u);
                return;
            }
            if ((low_ | high_) == 0) {
                place(value);
            } else {
                flush(add_to_bin);
                // No further than needed: numbers at both ends must not move it to and fro.
                bottom_ = binade < bottom_ ? binade : binade - kSpan;
            }
        }
        const std::uint32_t shift = 2 * (binade - bottom_);
        const std::uint64_t square = std::uint64_t{mantissa} * mantissa;
        const std::uint64_t low = square << shift;
        low_ += low;
        high_ += ((square >> 1) >> (63 - shift)) + (low_ < low ? 1 : 0);
    }

    /// Moves the sum to bins.
    template <typename AddToBin>
    FULLSHARD_HOST_DEVICE void flush(const AddToBin& add_to_bin) {
        for (std::uint32_t i = 0; i < kDigits; ++i) {
            const std::uint32_t amount = digit(first_bin() + i);
            if (amount != 0) add_to_bin(first_bin() + i, amount);
        }
        low_ = high_ = 0;
    }

    /// Bins that the sum reaches into, from first_bin() on: 128 bits, shifted by up to 31.
    static constexpr std::uint32_t kDigits = 5;
    FULLSHARD_HOST_DEVICE std::uint32_t first_bin() const { return 2 * bottom_ / 32; }
    /// What the sum has in a bin; 0 in those that it does not reach into.
    FULLSHARD_HOST_DEVICE std::uint32_t digit(std::uint32_t bin) const {
        // The bin's lowest bit, counted from the sum's lowest one, plus 32: not negative.
        const std::uint32_t from = 32 * (bin + 1) - 2 * bottom_;
        if (from >= 32 + 128) return 0;
        const std::uint32_t word = from / 32, shift = from % 32;
        // Words 0 to 5 are 32 zeros below the sum, its four words, and zeros above it.
        const std::uint64_t pair = std::uint64_t{word_of(word + 1)} << 32 | word_of(word);
        return static_cast<std::uint32_t>(pair >> shift);
    }

  private:
    static constexpr std::uint32_t kNonFinite = 255;

    FULLSHARD_HOST_DEVICE static std::uint32_t biased_exponent(float value) {
        return std::bit_cast<std::uint32_t>(value) >> 23 & 0xff;
    }
    /// Subnormal numbers lie in the binade of the smallest normal ones.
    FULLSHARD_HOST_DEVICE static std::uint32_t binade_of(std::uint32_t exponent) {
        return exponent == 0 ? 0 : exponent - 1;
    }
    FULLSHARD_HOST_DEVICE std::uint32_t word_of(std::uint32_t word) const {
        const std::uint64_t half = word <= 2 ? low_ : high_;
        const bool outside = word == 0 || word > 4;
        return outside ? 0 : static_cast<std::uint32_t>(word % 2 == 1 ? half : half >> 32);
    }

    std::uint32_t bottom_ = 0;  ///< the lowest binade: 24 bits times 2^(bottom - 149)
    std::uint64_t low_ = 0;
    std::uint64_t high_ = 0;
};

}  // namespace fullshard::kernels
