#include "kernels/stream_kernels_test.h"

#include "base/error.h"
#include "base/philox.h"
#include "base/rng.h"
#include "kernels/half_float.h"
#include "kernels/half_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace fullshard::kernels {
namespace {

using fullshard::testing::kBFloat16Format;
using fullshard::testing::kFloat16Format;
using fullshard::testing::rounded_to;
using fullshard::testing::same_number;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The number of an element, by the definition of its type.
double number(float value) {
    return value;
}
double number(BFloat16 value) {
    return kBFloat16Format.value(value.bits);
}
double number(Float16 value) {
    return kFloat16Format.value(value.bits);
}

template <typename T>
T element(float value);
template <>
float element<float>(float value) {
    return value;
}
template <>
BFloat16 element<BFloat16>(float value) {
    return to_bfloat16(value);
}
template <>
Float16 element<Float16>(float value) {
    return to_float16(value);
}

template <typename T>
std::vector<T> elements(const std::vector<float>& values) {
    std::vector<T> result(values.size());
    std::ranges::transform(values, result.begin(), element<T>);
    return result;
}

/// Numbers of many binades and both signs, with the special ones in between.
std::vector<float> wide_numbers(std::uint64_t key, std::int64_t count) {
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

std::vector<float> normals(std::uint64_t key, std::int64_t count, double scale = 1.0) {
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
std::vector<Shape> shapes(std::int64_t large_count) {
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

/// The number of wrong elements is reported with the first of them.
template <typename T, typename Expected>
void expect_elements(const std::vector<T>& actual, const Expected& expected) {
    for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_TRUE(same_number(number(actual[i]), expected(i)))
            << "element " << i << " of " << actual.size() << " is " << number(actual[i])
            << " and should be " << expected(i);
    }
}

TEST_P(StreamKernelsTest, ConvertRoundsToNearest) {
    for_all_pairs([&]<typename From, typename To>(Types<From, To>) {
        for (const Shape& shape : shapes(rig_.large_count())) {
            const auto from = elements<From>(wide_numbers(1, shape.count));
            const TypedSpan source = rig_.put(from, shape.first_offset);
            const TypedSpan out =
                rig_.put(std::vector<To>(from.size(), element<To>(7)), shape.second_offset);
            rig_.kernels().convert(source, out, rig_.stream());
            expect_elements(rig_.get<To>(out), [&](std::size_t i) {
                return double{rounded_to(DTypeOf<To>::value, number(from[i]))};
            });
        }
    });
}

TEST_P(StreamKernelsTest, AccumulateRoundsToFloat32) {
    for_all_types([&]<typename From>(Types<From, From>) {
        for (const Shape& shape : shapes(rig_.large_count())) {
            const auto from = elements<From>(wide_numbers(1, shape.count));
            const auto before = wide_numbers(2, shape.count);
            const TypedSpan addend = rig_.put(from, shape.first_offset);
            const TypedSpan sum = rig_.put(before, shape.second_offset);
            rig_.kernels().accumulate(addend, sum, rig_.stream());
            expect_elements(rig_.get<float>(sum), [&](std::size_t i) {
                return double{before[i] + static_cast<float>(number(from[i]))};
            });
        }
    });
}

TEST_P(StreamKernelsTest, ScaleRoundsTheProduct) {
    constexpr double kFactor = 1.0 / 3.0;
    for_all_types([&]<typename T>(Types<T, T>) {
        for (const Shape& shape : shapes(rig_.large_count())) {
            const auto before = elements<T>(wide_numbers(1, shape.count));
            const TypedSpan values = rig_.put(before, shape.first_offset);
            rig_.kernels().scale(values, kFactor, rig_.stream());
            expect_elements(rig_.get<T>(values), [&](std::size_t i) {
                const float product =
                    static_cast<float>(number(before[i])) * static_cast<float>(kFactor);
                return double{rounded_to(DTypeOf<T>::value, product)};
            });
        }
    });
}

/// Whether the sum of squares of vectors, each added by one call, is exact.
template <typename T>
void expect_exact_squares(testing::StreamRig& rig, const std::vector<std::vector<T>>& vectors) {
    const TypedSpan bins = rig.put(std::vector<std::int64_t>(SquareSum::kBins));
    SquareSum expected;
    std::int64_t offset = 0;
    for (const std::vector<T>& values : vectors) {
        rig.kernels().square_sum(rig.put(values, offset++), bins, rig.stream());
        std::vector<float> widened(values.size());
        std::ranges::transform(values, widened.begin(),
                               [](T value) { return static_cast<float>(number(value)); });
        expected.add(widened);
    }
    SquareSum actual;
    std::ranges::copy(rig.get<std::int64_t>(bins), actual.bins().begin());
    EXPECT_EQ(actual.infinities(), expected.infinities());
    EXPECT_EQ(actual.nans(), expected.nans());
    EXPECT_TRUE(same_number(actual.value(), expected.value()))
        << actual.value() << " and should be " << expected.value();
    // Adding nothing passes carries on, so that all bins can be compared.
    std::ranges::fill(actual.bins().last<2>(), 0);
    const float zero = 0;
    actual.add({&zero, 1});
    EXPECT_TRUE(std::ranges::equal(actual.bins().first<SquareSum::kWeightBins>(),
                                   expected.bins().first<SquareSum::kWeightBins>()));
}

TEST_P(StreamKernelsTest, SquareSumIsExact) {
    for_all_types([&]<typename T>(Types<T, T>) {
        expect_exact_squares<T>(rig_, {{}});
        expect_exact_squares<T>(rig_, {{element<T>(3)}, {element<T>(-4)}});
        expect_exact_squares<T>(rig_, {elements<T>(normals(1, rig_.large_count(), 1e-3))});
        expect_exact_squares<T>(rig_, {elements<T>(normals(1, 1000, 1e-3)),
                                       {},
                                       elements<T>(normals(2, 77, 1e4)),
                                       elements<T>(normals(3, 4097, 1e-7))});
        // With infinities and NaNs, which are counted, and the largest and smallest numbers.
        expect_exact_squares<T>(rig_, {elements<T>(wide_numbers(4, rig_.large_count()))});
    });
}

TEST_P(StreamKernelsTest, SquareSumOfExtremeNumbersIsExact) {
    std::vector<float> values(static_cast<std::size_t>(rig_.large_count()));
    const RandomStream stream(5);
    for (std::size_t i = 0; i < values.size(); ++i) {
        // All finite bit patterns, subnormal numbers in every second place.
        const auto bits = static_cast<std::uint32_t>(stream.bits(i));
        const std::uint32_t finite = (bits & 0x7f800000) == 0x7f800000 ? bits ^ 0x40000000 : bits;
        values[i] = std::bit_cast<float>(i % 2 == 0 ? finite : finite & 0x807fffff);
    }
    expect_exact_squares<float>(rig_, {values});
    std::ranges::fill(values, std::numeric_limits<float>::max());
    expect_exact_squares<float>(rig_, {values});
    std::ranges::fill(values, std::numeric_limits<float>::denorm_min());
    expect_exact_squares<float>(rig_, {values, {std::numeric_limits<float>::max()}});
}

/// Operands of an update on the host.
struct AdamWState {
    std::vector<float> param, gradient, m, v;

    AdamWState(std::uint64_t key, std::int64_t count)
        : param(normals(key, count)),
          gradient(normals(key + 1, count, 0.1)),
          m(normals(key + 2, count, 0.1)),
          v(normals(key + 3, count, 0.1)) {
        for (float& value : v) value *= value;
        if (count > 4) {
            gradient[1] = kNan;
            gradient[2] = kInfinity;
            gradient[3] = v[3] = m[3] = 0.0f;
        }
    }
};

constexpr AdamWSettings kSettings{.lr = 1e-2,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .step = 3,
                                  .gradient_factor = 0.37,
                                  .clip_value = 0.2};

/// The same operands on the device, at different distances from aligned addresses.
template <typename Copy>
AdamWMemory put(testing::StreamRig& rig, const AdamWState& state, const Shape& shape) {
    return {.param = rig.put(state.param, shape.first_offset),
            .gradient = rig.put(state.gradient, shape.second_offset),
            .first_moment = rig.put(state.m, shape.first_offset),
            .second_moment = rig.put(state.v, shape.first_offset),
            .copy = rig.put(std::vector<Copy>(state.param.size()), shape.first_offset)};
}

void expect_bits(const std::vector<float>& actual, const std::vector<float>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
        ASSERT_TRUE(same_number(actual[i], expected[i]))
            << "element " << i << ": " << actual[i] << ", " << expected[i];
    }
}

TEST_P(StreamKernelsTest, AdamWHasTheBitsOfTheHostsUpdate) {
    for (const double beta1 : {0.9, 0.3}) {
        AdamWSettings settings = kSettings;
        settings.beta1 = beta1;
        const AdamWScalars scalars = adamw_scalars(settings);
        for_all_types([&]<typename Copy>(Types<Copy, Copy>) {
            for (const Shape& shape : shapes(rig_.large_count())) {
                AdamWState state(1, shape.count);
                const AdamWMemory memory = put<Copy>(rig_, state, shape);
                rig_.kernels().adamw_update(memory, scalars, std::nullopt, rig_.stream());
                adamw_update(state.param, state.gradient, state.m, state.v, scalars);
                expect_bits(rig_.get<float>(memory.param), state.param);
                expect_bits(rig_.get<float>(memory.gradient), state.gradient);
                expect_bits(rig_.get<float>(memory.first_moment), state.m);
                expect_bits(rig_.get<float>(memory.second_moment), state.v);
                expect_elements(rig_.get<Copy>(memory.copy), [&](std::size_t i) {
                    return double{rounded_to(DTypeOf<Copy>::value, state.param[i])};
                });
            }
        });
    }
}

TEST_P(StreamKernelsTest, AdamWWithoutACopy) {
    AdamWState state(1, 1003);
    AdamWMemory memory = put<float>(rig_, state, {1003, 1, 1});
    memory.copy = {};
    rig_.kernels().adamw_update(memory, adamw_scalars(kSettings), std::nullopt, rig_.stream());
    adamw_update(state.param, state.gradient, state.m, state.v, adamw_scalars(kSettings));
    expect_bits(rig_.get<float>(memory.param), state.param);
}

/// Element e of a flat parameter goes up where the 16 bits of Philox that belong to it, added to
/// the 16 bits that bf16 drops, have a carry.
double chosen_neighbour(float value, std::uint64_t key, std::uint64_t e) {
    if (!std::isfinite(value)) return value;
    const auto block = philox4x32(
        {static_cast<std::uint32_t>(e / 4), static_cast<std::uint32_t>(e / 4 >> 32), 0, 0},
        {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    const std::uint32_t random = block[e % 4] >> 16;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool up = (bits & 0xffff) + random > 0xffff;
    return kBFloat16Format.value(static_cast<std::uint16_t>((bits >> 16) + (up ? 1 : 0)));
}

TEST_P(StreamKernelsTest, StochasticRoundingBelongsToTheElement) {
    constexpr std::uint64_t kKey = 0x123456789abcdef0;
    constexpr std::int64_t kBeyond32Bits = (std::int64_t{1} << 35) + 3;
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{5}, kBeyond32Bits}) {
        for (const Shape& shape : shapes(rig_.large_count())) {
            AdamWState state(1, shape.count);
            const AdamWMemory memory = put<BFloat16>(rig_, state, shape);
            rig_.kernels().adamw_update(memory, adamw_scalars(kSettings),
                                        StochasticRounding{kKey, first}, rig_.stream());
            adamw_update(state.param, state.gradient, state.m, state.v, adamw_scalars(kSettings));
            expect_bits(rig_.get<float>(memory.param), state.param);
            expect_elements(rig_.get<BFloat16>(memory.copy), [&](std::size_t i) {
                return chosen_neighbour(state.param[i], kKey,
                                        static_cast<std::uint64_t>(first) + i);
            });
        }
    }
}

TEST_P(StreamKernelsTest, StochasticRoundingIsRightOnAverage) {
    // Without moments and gradient the parameter stays what it is.
    const std::int64_t count = 40000;
    constexpr float kValue = 1.0f + 0.3f / 128.0f;
    AdamWState state(1, count);
    std::ranges::fill(state.param, kValue);
    for (auto* values : {&state.gradient, &state.m, &state.v}) std::ranges::fill(*values, 0.0f);
    const AdamWMemory memory = put<BFloat16>(rig_, state, {count, 0, 0});
    AdamWSettings settings = kSettings;
    settings.weight_decay = 0;
    rig_.kernels().adamw_update(memory, adamw_scalars(settings), StochasticRounding{11, 0},
                                rig_.stream());
    double sum = 0;
    for (const BFloat16 value : rig_.get<BFloat16>(memory.copy)) sum += number(value);
    // Two values, a distance of 1/128 apart, one with probability 0.3.
    const double deviation = std::sqrt(0.3 * 0.7 / count) / 128;
    EXPECT_NEAR(sum / count, kValue, 5 * deviation);
}

/// Rows of logits with targets, and where they end in memory.
struct Logits {
    std::int64_t rows, classes, stride;
    std::vector<float> values;
    std::vector<std::int64_t> targets;

    Logits(std::int64_t row_count, std::int64_t class_count, std::int64_t row_stride, double scale)
        : rows(row_count),
          classes(class_count),
          stride(row_stride),
          values(normals(7, row_count * row_stride, scale)),
          targets(static_cast<std::size_t>(row_count)) {
        const RandomStream stream(8);
        for (std::size_t r = 0; r < targets.size(); ++r) {
            targets[r] =
                static_cast<std::int64_t>(stream.below(r, static_cast<std::uint64_t>(classes)));
        }
    }

    float& at(std::int64_t row, std::int64_t i) {
        return values[static_cast<std::size_t>(row * stride + i)];
    }
};

struct CrossEntropyResult {
    std::vector<float> losses;
    std::vector<float> gradients;  ///< with what is between rows
};

template <typename T>
CrossEntropyResult cross_entropy(testing::StreamRig& rig, const Logits& logits, float factor,
                                 std::int64_t offset) {
    const CrossEntropyRows rows{.logits = rig.put(elements<T>(logits.values), offset),
                                .classes = logits.classes,
                                .row_stride = logits.stride,
                                .targets = rig.put(logits.targets),
                                .losses = rig.put(std::vector<float>(logits.targets.size(), 5))};
    rig.kernels().cross_entropy(rows, factor, rig.stream());
    const auto gradients = rig.get<T>(rows.logits);
    CrossEntropyResult result{rig.get<float>(rows.losses), {}};
    for (const T value : gradients) result.gradients.push_back(static_cast<float>(number(value)));
    return result;
}

/// Compares with the formula in double. Half-width types keep `bits` bits of a gradient.
template <typename T>
void expect_cross_entropy(testing::StreamRig& rig, const Logits& logits, float factor,
                          std::int64_t offset) {
    const auto actual = cross_entropy<T>(rig, logits, factor, offset);
    const auto stored = elements<T>(logits.values);
    const double last_place = DTypeOf<T>::value == DType::kFloat32    ? 0x1p-24
                              : DTypeOf<T>::value == DType::kBFloat16 ? 0x1p-8
                                                                      : 0x1p-11;
    // Half of the smallest fp16 number, which an fp32 or bf16 gradient does not need.
    const double smallest = DTypeOf<T>::value == DType::kFloat16 ? 0x1p-25 : 1e-37;
    for (std::int64_t r = 0; r < logits.rows; ++r) {
        const auto logit = [&](std::int64_t i) {
            return number(stored[static_cast<std::size_t>(r * logits.stride + i)]);
        };
        double largest = -HUGE_VAL, sum = 0;
        for (std::int64_t i = 0; i < logits.classes; ++i) largest = std::max(largest, logit(i));
        for (std::int64_t i = 0; i < logits.classes; ++i) sum += std::exp(logit(i) - largest);
        const double log_sum = largest + std::log(sum);
        const std::int64_t target = logits.targets[static_cast<std::size_t>(r)];
        const double scale = std::max({1.0, std::abs(log_sum), std::abs(logit(target))});
        ASSERT_NEAR(actual.losses[static_cast<std::size_t>(r)], log_sum - logit(target),
                    3e-7 * scale)
            << "row " << r;
        for (std::int64_t i = 0; i < logits.stride; ++i) {
            const auto place = static_cast<std::size_t>(r * logits.stride + i);
            if (i >= logits.classes) {
                ASSERT_EQ(actual.gradients[place], number(stored[place])) << "between rows";
                continue;
            }
            const double p = std::exp(logit(i) - log_sum);
            const double expected = (p - (i == target ? 1.0 : 0.0)) * factor;
            // An error of the logarithm is a relative error of every probability.
            const double tolerance = 4e-7 * scale * p * factor + 0x1p-24 * factor * (i == target) +
                                     last_place * std::abs(expected) + smallest;
            ASSERT_NEAR(actual.gradients[place], expected, tolerance) << "row " << r << ", " << i;
        }
    }
}

TEST_P(StreamKernelsTest, CrossEntropyAgreesWithItsFormula) {
    for_all_types([&]<typename T>(Types<T, T>) {
        expect_cross_entropy<T>(rig_, Logits(3, 1, 1, 1.0), 1.0f, 0);
        expect_cross_entropy<T>(rig_, Logits(5, 7, 7, 2.0), 0.25f, 0);
        expect_cross_entropy<T>(rig_, Logits(4, 64, 64, 1.0), 0.5f, 1);
        expect_cross_entropy<T>(rig_, Logits(4, 1000, 1008, 5.0), 1.0f, 0);
        expect_cross_entropy<T>(rig_, Logits(2, 5003, 5003, 3.0), 2.0f, 3);
        expect_cross_entropy<T>(rig_, Logits(2, 50257, 50264, 2.0), 1.0f / 32, 0);
    });
}

TEST_P(StreamKernelsTest, CrossEntropyOfHugeLogitsDoesNotOverflow) {
    Logits logits(3, 3000, 3000, 1.0);
    for (float& value : logits.values) value *= 1e4f;
    expect_cross_entropy<float>(rig_, logits, 1.0f, 0);
    expect_cross_entropy<BFloat16>(rig_, logits, 1.0f, 0);
}

TEST_P(StreamKernelsTest, ManyRowsOfCrossEntropy) {
    const std::int64_t rows = rig_.large_count() / 1000;
    expect_cross_entropy<BFloat16>(rig_, Logits(rows, 640, 640, 2.0), 1.0f, 0);
}

TEST_P(StreamKernelsTest, CrossEntropyOfExcludedClasses) {
    // Whole threads see nothing but -infinity.
    Logits logits(2, 4096, 4096, 1.0);
    for (std::int64_t i = 8; i < logits.classes; ++i) logits.at(0, i) = -kInfinity;
    for (std::int64_t i = 0; i < logits.classes; ++i)
        if (i != 4001) logits.at(1, i) = -kInfinity;
    logits.targets = {3, 4001};
    expect_cross_entropy<float>(rig_, logits, 1.0f, 0);
    const auto result = cross_entropy<BFloat16>(rig_, logits, 1.0f, 0);
    EXPECT_EQ(result.losses[1], 0.0f);
    EXPECT_EQ(result.gradients[4096 + 4001], 0.0f);
}

TEST_P(StreamKernelsTest, CrossEntropyOfIgnoredAndWrongTargets) {
    for_all_types([&]<typename T>(Types<T, T>) {
        Logits logits(6, 100, 104, 1.0);
        logits.targets = {-1, 5, 100, -100, 7, 8};
        logits.at(0, 3) = kNan;
        logits.at(4, 3) = kNan;
        logits.at(5, 3) = kInfinity;
        const auto result = cross_entropy<T>(rig_, logits, 1.0f, 0);
        for (const std::size_t ignored : {0, 3}) {
            EXPECT_EQ(result.losses[ignored], 0.0f);
            for (std::size_t i = 0; i < 100; ++i)
                EXPECT_EQ(result.gradients[ignored * 104 + i], 0.0f);
        }
        EXPECT_TRUE(std::isfinite(result.losses[1]));
        for (const std::size_t bad : {2, 4, 5}) {
            EXPECT_TRUE(std::isnan(result.losses[bad])) << bad;
            for (std::size_t i = 0; i < 100; ++i)
                EXPECT_TRUE(std::isnan(result.gradients[bad * 104 + i])) << bad << ", " << i;
        }
    });
}

TEST_P(StreamKernelsTest, RefusesOperandsThatDoNotFit) {
    const auto& kernels = rig_.kernels();
    auto& stream = rig_.stream();
    const TypedSpan floats = rig_.put(std::vector<float>(64));
    const TypedSpan halves = rig_.put(std::vector<BFloat16>(64));
    const TypedSpan integers = rig_.put(std::vector<std::int64_t>(64));
    TypedSpan elsewhere = floats;
    elsewhere.device = floats.device == DeviceKind::kHost ? DeviceKind::kCuda : DeviceKind::kHost;
    TypedSpan misaligned = floats.part(0, 32);
    misaligned.data += 2;
    EXPECT_THROW(kernels.convert(floats, halves.part(0, 63), stream), LogicError);
    EXPECT_THROW(kernels.convert(floats, integers, stream), LogicError);
    EXPECT_THROW(kernels.convert(elsewhere, halves, stream), LogicError);
    EXPECT_THROW(kernels.convert(misaligned, halves.part(0, 32), stream), LogicError);
    EXPECT_THROW(kernels.accumulate(floats, halves, stream), LogicError);
    EXPECT_THROW(kernels.accumulate(halves, floats.part(0, 63), stream), LogicError);
    EXPECT_THROW(kernels.scale(integers, 2.0, stream), LogicError);
    EXPECT_THROW(kernels.square_sum(floats, integers, stream), LogicError);
    EXPECT_THROW(kernels.square_sum(integers, integers.part(0, SquareSum::kBins), stream),
                 LogicError);

    const AdamWMemory memory{floats.part(0, 8), floats.part(8, 8), floats.part(16, 8),
                             floats.part(24, 8), halves.part(0, 8)};
    const AdamWScalars scalars = adamw_scalars(kSettings);
    AdamWMemory wrong = memory;
    wrong.gradient = halves.part(8, 8);
    EXPECT_THROW(kernels.adamw_update(wrong, scalars, std::nullopt, stream), LogicError);
    wrong = memory;
    wrong.copy.count = 7;
    EXPECT_THROW(kernels.adamw_update(wrong, scalars, std::nullopt, stream), LogicError);
    wrong.copy = floats.part(32, 8);
    EXPECT_THROW(kernels.adamw_update(wrong, scalars, StochasticRounding{}, stream), LogicError);
    wrong.copy = {};
    EXPECT_THROW(kernels.adamw_update(wrong, scalars, StochasticRounding{}, stream), LogicError);

    const CrossEntropyRows rows{floats.part(0, 30), 10, 10, integers.part(0, 3),
                                floats.part(32, 3)};
    for (const auto& break_it : std::vector<std::function<void(CrossEntropyRows&)>>{
             [](auto& r) { r.row_stride = 9; }, [](auto& r) { r.classes = 0; },
             [](auto& r) { r.logits.count = 29; }, [](auto& r) { r.losses.count = 2; },
             [&](auto& r) { r.targets = floats.part(36, 3); }}) {
        CrossEntropyRows broken = rows;
        break_it(broken);
        EXPECT_THROW(kernels.cross_entropy(broken, 1.0f, stream), LogicError);
    }
    kernels.cross_entropy(rows, 1.0f, stream);
    kernels.adamw_update(memory, scalars, std::nullopt, stream);
    rig_.get<float>(floats);
}

}  // namespace
}  // namespace fullshard::kernels
