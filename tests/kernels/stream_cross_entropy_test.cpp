#include "kernels/operands.h"
#include "kernels/stream_kernels_test.h"

#include <algorithm>
#include <cmath>

namespace fullshard::kernels {
namespace {

using namespace fullshard::testing;

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
    // Half of the smallest fp16 number, or a probability that counts as 0.
    const double smallest = DTypeOf<T>::value == DType::kFloat16 ? 0x1p-25 : 2e-30 * factor;
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
        expect_cross_entropy<T>(*rig_, Logits(3, 1, 1, 1.0), 1.0f, 0);
        expect_cross_entropy<T>(*rig_, Logits(5, 7, 7, 2.0), 0.25f, 0);
        expect_cross_entropy<T>(*rig_, Logits(4, 64, 64, 1.0), 0.5f, 1);
        expect_cross_entropy<T>(*rig_, Logits(4, 1000, 1008, 5.0), 1.0f, 0);
        expect_cross_entropy<T>(*rig_, Logits(2, 5003, 5003, 3.0), 2.0f, 3);
        expect_cross_entropy<T>(*rig_, Logits(2, 50257, 50264, 2.0), 1.0f / 32, 0);
    });
}

TEST_P(StreamKernelsTest, CrossEntropyOfHugeLogitsDoesNotOverflow) {
    Logits logits(3, 3000, 3000, 1.0);
    for (float& value : logits.values) value *= 1e4f;
    expect_cross_entropy<float>(*rig_, logits, 1.0f, 0);
    expect_cross_entropy<BFloat16>(*rig_, logits, 1.0f, 0);
}

TEST_P(StreamKernelsTest, ManyRowsOfCrossEntropy) {
    const std::int64_t rows = rig_->large_count() / 1000;
    expect_cross_entropy<BFloat16>(*rig_, Logits(rows, 640, 640, 2.0), 1.0f, 0);
}

TEST_P(StreamKernelsTest, CrossEntropyOfExcludedClasses) {
    // Whole threads see nothing but -infinity.
    Logits logits(2, 4096, 4096, 1.0);
    for (std::int64_t i = 8; i < logits.classes; ++i) logits.at(0, i) = -kInfinity;
    for (std::int64_t i = 0; i < logits.classes; ++i)
        if (i != 4001) logits.at(1, i) = -kInfinity;
    logits.targets = {3, 4001};
    expect_cross_entropy<float>(*rig_, logits, 1.0f, 0);
    const auto result = cross_entropy<BFloat16>(*rig_, logits, 1.0f, 0);
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
        const auto result = cross_entropy<T>(*rig_, logits, 1.0f, 0);
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

}  // namespace
}  // namespace fullshard::kernels
