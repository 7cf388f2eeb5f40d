#include "kernels/stream_kernels_test.h"

#include "base/error.h"
#include "kernels/operands.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

namespace fullshard::kernels {
namespace {

using namespace fullshard::testing;

TEST_P(StreamKernelsTest, ConvertRoundsToNearest) {
    for_all_pairs([&]<typename From, typename To>(Types<From, To>) {
        for (const Shape& shape : shapes(rig_->large_count())) {
            const auto from = elements<From>(wide_numbers(1, shape.count));
            const TypedSpan source = rig_->put(from, shape.first_offset);
            const TypedSpan out =
                rig_->put(std::vector<To>(from.size(), element<To>(7)), shape.second_offset);
            rig_->kernels().convert(source, out, rig_->stream());
            expect_elements(rig_->get<To>(out), [&](std::size_t i) {
                return double{rounded_to(DTypeOf<To>::value, number(from[i]))};
            });
        }
    });
}

TEST_P(StreamKernelsTest, AccumulateRoundsToFloat32) {
    for_all_types([&]<typename From>(Types<From, From>) {
        for (const Shape& shape : shapes(rig_->large_count())) {
            const auto from = elements<From>(wide_numbers(1, shape.count));
            const auto before = wide_numbers(2, shape.count);
            const TypedSpan addend = rig_->put(from, shape.first_offset);
            const TypedSpan sum = rig_->put(before, shape.second_offset);
            rig_->kernels().accumulate(addend, sum, rig_->stream());
            expect_elements(rig_->get<float>(sum), [&](std::size_t i) {
                return double{before[i] + static_cast<float>(number(from[i]))};
            });
        }
    });
}

TEST_P(StreamKernelsTest, ScaleRoundsTheProduct) {
    constexpr double kFactor = 1.0 / 3.0;
    for_all_types([&]<typename T>(Types<T, T>) {
        for (const Shape& shape : shapes(rig_->large_count())) {
            const auto before = elements<T>(wide_numbers(1, shape.count));
            const TypedSpan values = rig_->put(before, shape.first_offset);
            rig_->kernels().scale(values, kFactor, rig_->stream());
            expect_elements(rig_->get<T>(values), [&](std::size_t i) {
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
        expect_exact_squares<T>(*rig_, {{}});
        expect_exact_squares<T>(*rig_, {{element<T>(3)}, {element<T>(-4)}});
        expect_exact_squares<T>(*rig_, {elements<T>(normals(1, rig_->large_count(), 1e-3))});
        expect_exact_squares<T>(*rig_, {elements<T>(normals(1, 1000, 1e-3)),
                                        {},
                                        elements<T>(normals(2, 77, 1e4)),
                                        elements<T>(normals(3, 4097, 1e-7))});
        // With infinities and NaNs, which are counted, and the largest and smallest numbers.
        expect_exact_squares<T>(*rig_, {elements<T>(wide_numbers(4, rig_->large_count()))});
    });
}

TEST_P(StreamKernelsTest, SquareSumOfExtremeNumbersIsExact) {
    std::vector<float> values(static_cast<std::size_t>(rig_->large_count()));
    const RandomStream stream(5);
    for (std::size_t i = 0; i < values.size(); ++i) {
        // All finite bit patterns, subnormal numbers in every second place.
        const auto bits = static_cast<std::uint32_t>(stream.bits(i));
        const std::uint32_t finite = (bits & 0x7f800000) == 0x7f800000 ? bits ^ 0x40000000 : bits;
        values[i] = std::bit_cast<float>(i % 2 == 0 ? finite : finite & 0x807fffff);
    }
    expect_exact_squares<float>(*rig_, {values});
    std::ranges::fill(values, std::numeric_limits<float>::max());
    expect_exact_squares<float>(*rig_, {values});
    std::ranges::fill(values, std::numeric_limits<float>::denorm_min());
    expect_exact_squares<float>(*rig_, {values, {std::numeric_limits<float>::max()}});
}

TEST_P(StreamKernelsTest, RefusesOperandsThatDoNotFit) {
    const auto& kernels = rig_->kernels();
    auto& stream = rig_->stream();
    const TypedSpan floats = rig_->put(std::vector<float>(64));
    const TypedSpan halves = rig_->put(std::vector<BFloat16>(64));
    const TypedSpan integers = rig_->put(std::vector<std::int64_t>(64));
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
    const AdamWScalars scalars = adamw_scalars({.lr = 0.1});
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
    rig_->get<float>(floats);
}

}  // namespace
}  // namespace fullshard::kernels
