// Operands for tests of kernels, and their values by the definition of their types.
#pragma once

#include "base/rng.h"
#include "base/span.h"
#include "kernels/half_float.h"
#include "kernels/half_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

namespace fullshard::testing {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The number of an element, by the definition of its type.
inline double number(float value) {
    return value;
}
inline double number(BFloat16 value) {
    return kBFloat16Format.value(value.bits);
}
inline double number(Float16 value) {
    return kFloat16Format.value(value.bits);
}

template <typename T>
T element(float value);
template <>
inline float element<float>(float value) {
    return value;
}
template <>
inline BFloat16 element<BFloat16>(float value) {
    return kernels::to_bfloat16(value);
}
template <>
inline Float16 element<Float16>(float value) {
    return kernels::to_float16(value);
}

template <typename T>
std::vector<T> elements(const std::vector<float>& values) {
    std::vector<T> result(values.size());
    std::ranges::transform(values, result.begin(), element<T>);
    return result;
}

/// Numbers of many binades and both signs, with the special ones in between.
inline std::vector<float> wide_numbers(std::uint64_t key, std::int64_t count) {
    constexpr float kSpecial[] = {0.0f,     -0.0f,    kInfinity, -kInfinity, kNan,       1e-45f,
                                  1e-39f,   65504.0f, 65519.0f,  65520.0f,   3.3895e38f, 3.4e38f,
                                  5.96e-8f, 2.9e-8f,  6.1e-5f,   1.00390625f};
    const RandomStream stream(key);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) {
        const int exponent = static_cast<int>(stream.below(2 * i, 60)) - 40;
        values[i] = i % 7 == 5 ? kSpecial[i / 7 % std::size(kSpecial)]
                               : static_cast<float>(std::ldexp(stream.normal(2 * i + 1), exponent));
    }
    return values;
}

inline std::vector<float> normals(std::uint64_t key, std::int64_t count, double scale = 1.0) {
    const RandomStream stream(key);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(scale * stream.normal(i));
    return values;
}

/// Elements around which the cut into packets changes, and distances of both operands from aligned
/// addresses.
struct Shape {
    std::int64_t count, first_offset, second_offset;
};
inline std::vector<Shape> shapes(std::int64_t large_count) {
    return {{0, 0, 0},  {1, 0, 0},   {3, 1, 1},    {8, 0, 0},           {9, 0, 3},
            {31, 1, 1}, {257, 5, 5}, {1030, 2, 6}, {large_count, 3, 3}, {large_count, 0, 1}};
}

template <typename First, typename Second = First>
struct Types {};

/// Calls `test` with Types<First, Second>{} for all pairs of floating-point types.
template <typename Test>
void for_all_pairs(const Test& test) {
    const auto with_first = [&]<typename First>() {
        test(Types<First, float>{});
        test(Types<First, BFloat16>{});
        test(Types<First, Float16>{});
    };
    with_first.template operator()<float>();
    with_first.template operator()<BFloat16>();
    with_first.template operator()<Float16>();
}

/// Calls it with the floating-point types.
template <typename Test>
void for_all_types(const Test& test) {
    test(Types<float>{});
    test(Types<BFloat16>{});
    test(Types<Float16>{});
}

/// Stops at the first wrong element.
template <typename T, typename Expected>
void expect_elements(const std::vector<T>& actual, const Expected& expected) {
    for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_TRUE(same_number(number(actual[i]), expected(i)))
            << "element " << i << " of " << actual.size() << " is " << number(actual[i])
            << " and should be " << expected(i);
    }
}

}  // namespace fullshard::testing
