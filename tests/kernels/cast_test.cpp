#include "kernels/cast.h"

#include "base/error.h"
#include "base/rng.h"
#include "kernels/half_reference.h"
#include "support/allocation_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace fullshard::kernels {
namespace {

using fullshard::testing::HalfFormat;
using fullshard::testing::kBFloat16Format;
using fullshard::testing::kFloat16Format;
using fullshard::testing::rounded_to;
using fullshard::testing::same_number;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Half {
    DType dtype;
    HalfFormat format;
};

class HalfCast : public ::testing::TestWithParam<Half> {
  protected:
    static HalfFormat format() { return GetParam().format; }

    static TypedSpan typed(std::vector<std::uint16_t>& bits) {
        TypedSpan span{std::span(reinterpret_cast<BFloat16*>(bits.data()), bits.size())};
        span.dtype = GetParam().dtype;
        return span;
    }
    static std::vector<float> widened(std::vector<std::uint16_t> bits) {
        std::vector<float> values(bits.size());
        widen(typed(bits), values);
        return values;
    }
    static std::vector<std::uint16_t> narrowed(const std::vector<float>& values) {
        std::vector<std::uint16_t> bits(values.size());
        narrow(values, typed(bits));
        return bits;
    }
    static void expect_nearest(const std::vector<float>& values) {
        const auto bits = narrowed(values);
        for (std::size_t i = 0; i < values.size(); ++i) {
            ASSERT_TRUE(same_number(format().value(bits[i]), format().nearest(values[i])))
                << std::hexfloat << values[i] << " became " << format().value(bits[i]);
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Types, HalfCast,
                         ::testing::Values(Half{DType::kBFloat16, kBFloat16Format},
                                           Half{DType::kFloat16, kFloat16Format}),
                         [](const auto& test) { return std::string(name_of(test.param.dtype)); });

std::vector<std::uint16_t> all_bits() {
    std::vector<std::uint16_t> bits(1 << 16);
    std::iota(bits.begin(), bits.end(), 0);
    return bits;
}

TEST_P(HalfCast, WidensEveryNumberExactlyAndNarrowsItBack) {
    const auto values = widened(all_bits());
    const auto back = narrowed(values);
    for (std::uint32_t bits = 0; bits < values.size(); ++bits) {
        const double expected = format().value(static_cast<std::uint16_t>(bits));
        ASSERT_TRUE(same_number(values[bits], expected)) << std::hex << bits;
        if (std::isnan(expected)) {
            ASSERT_TRUE(std::isnan(format().value(back[bits]))) << std::hex << bits;
        } else {
            ASSERT_EQ(back[bits], bits);
        }
    }
}

// Around every number: itself, the tie half a last place above it, and the floats next to the tie.
// This passes through subnormals, the step to normal numbers, and the step to infinity.
TEST_P(HalfCast, RoundsToNearestAndTiesToEvenNextToEveryNumber) {
    std::vector<float> values;
    const double smallest = format().value(1);
    for (std::uint32_t bits = 0; bits < 1 << 16; ++bits) {
        const double number = format().value(static_cast<std::uint16_t>(bits));
        if (!std::isfinite(number)) continue;
        const double last_place = std::max(
            smallest,
            std::ldexp(1.0, (number == 0 ? format().smallest_exponent() : std::ilogb(number)) -
                                format().fraction_bits));
        const auto tie = static_cast<float>(number + std::copysign(last_place / 2, number));
        for (const float value : {static_cast<float>(number), tie, std::nextafter(tie, kInf),
                                  std::nextafter(tie, -kInf)}) {
            values.push_back(value);
        }
    }
    expect_nearest(values);
}

TEST_P(HalfCast, RoundsArbitraryFloats) {
    const RandomStream stream(7);
    std::vector<float> values(1 << 18);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(stream.below(i, 1ull << 32)));
    }
    expect_nearest(values);
}

TEST_P(HalfCast, OverflowsToInfinityAndKeepsInfinityZeroAndNan) {
    const auto largest = static_cast<float>(format().largest());
    const std::vector<float> values{largest, kInf, -kInf, 0.0f, -0.0f, kNan, -kNan,
                                    std::numeric_limits<float>::max(),
                                    std::numeric_limits<float>::denorm_min(),
                                    // A NaN that would be an infinity if its upper half were kept.
                                    std::bit_cast<float>(0x7f800001u)};
    const auto bits = narrowed(values);
    const double expected[] = {largest, kInf, -kInf, 0.0, -0.0, kNan, kNan, kInf, 0.0, kNan};
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_TRUE(same_number(format().value(bits[i]), expected[i])) << i;
    }
}

// Vector code, the rest behind it, and any alignment; nothing behind the end is written.
TEST_P(HalfCast, AnyCountAtAnyOffset) {
    auto bits = all_bits();
    bits.resize(300);
    for (auto& value : bits) value = static_cast<std::uint16_t>(value * 211);
    const auto values = widened(bits);
    for (std::size_t offset = 0; offset < 9; ++offset) {
        for (const std::size_t count : {0, 1, 7, 8, 15, 33, 290}) {
            const auto part = typed(bits).part(static_cast<std::int64_t>(offset),
                                               static_cast<std::int64_t>(count));
            std::vector<float> wide(count + 1, -77.0f);
            widen(part, std::span(wide).first(count));
            EXPECT_TRUE(count == 0 || std::memcmp(wide.data(), &values[offset], count * 4) == 0);
            EXPECT_EQ(wide[count], -77.0f);

            std::vector<std::uint16_t> half(count + 1, 0xabcd);
            const auto expected = narrowed(values);
            narrow(std::span(values).subspan(offset, count),
                   typed(half).part(0, static_cast<std::int64_t>(count)));
            EXPECT_TRUE(std::equal(half.begin(), half.end() - 1, expected.begin() + offset));
            EXPECT_EQ(half[count], 0xabcd);
        }
    }
}

TEST(Cast, Float32IsCopied) {
    std::vector<float> values{1.0f, kNan, -0.0f, 0x1.fffffep-1f}, wide(4), narrow_copy(4);
    widen(std::span(values), wide);
    narrow(values, std::span(narrow_copy));
    EXPECT_EQ(std::memcmp(values.data(), wide.data(), 16), 0);
    EXPECT_EQ(std::memcmp(values.data(), narrow_copy.data(), 16), 0);
    narrow(values, std::span(values));
    EXPECT_EQ(std::memcmp(values.data(), wide.data(), 16), 0);
}

// More than a block, so that the blocks between two half-width types join.
// Those of 8 MiB and more are written past the caches, line by line.
TEST(Cast, LargeCopiesAtAnyOffset) {
    const std::size_t large = (std::size_t{8} << 20) / sizeof(float);
    std::vector<float> source(large + 64);
    std::iota(source.begin(), source.end(), 1.0f);
    for (const std::size_t offset : {0, 1, 3, 15}) {
        for (const std::size_t count : {large - 1, large, large + 17}) {
            std::vector<float> out(source.size(), -1.0f);
            narrow(std::span(source).subspan(3, count),
                   TypedSpan(std::span(out).subspan(offset, count)));
            EXPECT_TRUE(std::equal(source.begin() + 3,
                                   source.begin() + 3 + static_cast<std::ptrdiff_t>(count),
                                   out.begin() + static_cast<std::ptrdiff_t>(offset)))
                << count << " at " << offset;
            EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(out, -1.0f)), out.size() - count)
                << "something else was written";
        }
    }
}

TEST(Cast, ConvertsEveryPairOfTypes) {
    constexpr std::size_t kCount = 1300;
    const RandomStream stream(3);
    std::vector<float> values(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
        values[i] = static_cast<float>(std::ldexp(stream.normal(i), static_cast<int>(i % 60) - 30));
    }
    constexpr DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
    for (const DType from : kTypes) {
        for (const DType to : kTypes) {
            std::vector<float> memory(kCount), converted(kCount), result(kCount);
            TypedSpan source{std::span(memory)}, out{std::span(converted)};
            source.dtype = from;
            out.dtype = to;
            narrow(values, source);
            convert(source, out);
            widen(out, result);
            for (std::size_t i = 0; i < kCount; ++i) {
                ASSERT_TRUE(same_number(result[i], rounded_to(to, rounded_to(from, values[i]))))
                    << name_of(from) << " to " << name_of(to) << ", element " << i;
            }
        }
    }
}

TEST(Cast, RefusesUnequalCountsAndIntegers) {
    std::vector<float> floats(4);
    std::vector<BFloat16> halves(3);
    std::vector<std::int64_t> integers(4);
    EXPECT_THROW(widen(std::span(halves), floats), LogicError);
    EXPECT_THROW(narrow(floats, std::span(halves)), LogicError);
    EXPECT_THROW(convert(std::span(halves), std::span(floats)), LogicError);
    EXPECT_THROW(widen(std::span(integers), floats), LogicError);
    EXPECT_THROW(narrow(floats, std::span(integers)), LogicError);
    EXPECT_THROW(convert(std::span(integers), std::span(halves)), LogicError);
}

TEST(Cast, AllocatesNothing) {
    std::vector<float> floats(2000, 1.5f);
    std::vector<BFloat16> brain(2000);
    std::vector<Float16> half(2000);
    const std::int64_t before = allocation_count();
    ASSERT_GT(before, 0);
    narrow(floats, std::span(brain));
    convert(std::span(brain), std::span(half));
    widen(std::span(half), floats);
    EXPECT_EQ(allocation_count(), before);
}

}  // namespace
}  // namespace fullshard::kernels
