// Half-width formats by their definition, in double and with ldexp: nothing shared with the
// kernels.
#pragma once

#include "base/span.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fullshard::testing {

/// Sign, exponent and fraction of a binary format.
struct HalfFormat {
    int exponent_bits;
    int fraction_bits;

    int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    int smallest_exponent() const { return 1 - bias(); }
    double largest() const { return std::ldexp(2.0 - std::ldexp(1.0, -fraction_bits), bias()); }

    /// The number that 16 bits stand for.
    double value(std::uint16_t bits) const {
        const int fraction = bits & ((1 << fraction_bits) - 1);
        const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
        const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
        if (exponent == (1 << exponent_bits) - 1) {
            return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                                 : std::numeric_limits<double>::quiet_NaN();
        }
        if (exponent == 0) return sign * std::ldexp(fraction, smallest_exponent() - fraction_bits);
        return sign *
               std::ldexp((1 << fraction_bits) + fraction, exponent - bias() - fraction_bits);
    }

    /// The nearest number of the format, ties to even (IEEE 754, section 4.3.1: a magnitude of at
    /// least the largest number plus half its last place becomes infinity).
    double nearest(double x) const {
        if (!std::isfinite(x) || x == 0) return x;
        const int exponent = std::max(std::ilogb(x), smallest_exponent());
        const double last_place = std::ldexp(1.0, exponent - fraction_bits);
        const double units = x / last_place;  // exact: a power of two
        double rounded = std::floor(units);
        const double rest = units - rounded;
        if (rest > 0.5 || (rest == 0.5 && std::fmod(rounded, 2.0) != 0)) rounded += 1;
        const double result = std::copysign(rounded * last_place, x);
        return std::abs(result) > largest()
                   ? std::copysign(std::numeric_limits<double>::infinity(), x)
                   : result;
    }
};

constexpr HalfFormat kBFloat16Format{8, 7};
constexpr HalfFormat kFloat16Format{5, 10};

/// `x` rounded to a floating-point type.
inline float rounded_to(DType dtype, double x) {
    switch (dtype) {
        case DType::kBFloat16:
            return static_cast<float>(kBFloat16Format.nearest(x));
        case DType::kFloat16:
            return static_cast<float>(kFloat16Format.nearest(x));
        default:
            return static_cast<float>(x);
    }
}

/// The same number or both NaN; zeros have equal signs.
inline bool same_number(double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return a == b && std::signbit(a) == std::signbit(b);
}

}  // namespace fullshard::testing
