#include "spec/model_spec.h"

#include "base/error.h"
#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace fullshard::spec {
namespace {

ParameterSpec parameter(InitRule init, std::vector<std::int64_t> shape = {250, 400}) {
    return {.name = "weight", .shape = std::move(shape), .decay = DecayClass::kDecay, .init = init};
}

std::vector<float> initial_values(const ParameterSpec& spec, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(spec.numel()));
    initialize(spec, seed, 0, values);
    return values;
}

struct Moments {
    double mean = 0, variance = 0, smallest = 0, largest = 0;
};

Moments moments(const std::vector<float>& values) {
    Moments m{.smallest = values.at(0), .largest = values.at(0)};
    for (const double x : values) {
        m.mean += x;
        m.variance += x * x;
        m.smallest = std::min(m.smallest, x);
        m.largest = std::max(m.largest, x);
    }
    m.mean /= static_cast<double>(values.size());
    m.variance = m.variance / static_cast<double>(values.size()) - m.mean * m.mean;
    return m;
}

TEST(Numel, IsTheProductOfTheShapeAndSumsOverStages) {
    EXPECT_EQ(parameter({}, {}).numel(), 1);
    EXPECT_EQ(parameter({}, {0, 7}).numel(), 0);
    EXPECT_EQ(parameter({}, {3, 5, 7}).numel(), 105);
    EXPECT_EQ(parameter({}, {1 << 20, 1 << 20}).numel(), std::int64_t{1} << 40);
    const StageSpec stage{"a", {parameter({}, {2, 3}), parameter({}, {4})}};
    EXPECT_EQ(stage.numel(), 10);
    EXPECT_EQ((ModelSpec{"m", {stage, stage, {"empty", {}}}}).numel(), 20);
}

TEST(Initialize, DoesNotDependOnHowTheRangeIsCut) {
    for (const auto kind : {InitRule::Kind::kUniform, InitRule::Kind::kNormal}) {
        const auto spec = parameter({kind, 0.3}, {17, 13});
        const auto whole = initial_values(spec, 5);
        for (const std::int64_t piece : {1, 2, 7, 64, 220}) {
            std::vector<float> pieces(whole.size());
            for (std::int64_t first = 0; first < spec.numel(); first += piece) {
                const auto count = std::min(piece, spec.numel() - first);
                initialize(spec, 5, first, std::span(pieces).subspan(first, count));
            }
            EXPECT_EQ(pieces, whole) << "pieces of " << piece;
        }
    }
}

TEST(Initialize, IsTheStreamOfSeedAndNameAtTheElementIndex) {
    const auto spec = parameter({InitRule::Kind::kUniform, 0.25});
    const RandomStream stream(mix(9, stable_hash("weight")));
    float value = 0;
    initialize(spec, 9, 99'999, std::span(&value, 1));
    EXPECT_EQ(value, static_cast<float>(0.25 * (2.0 * stream.uniform(99'999) - 1.0)));
}

TEST(Initialize, SeedAndNameSelectDifferentValues) {
    const auto spec = parameter({InitRule::Kind::kNormal, 1.0});
    auto renamed = spec;
    renamed.name = "other";
    EXPECT_NE(initial_values(spec, 1), initial_values(spec, 2));
    EXPECT_NE(initial_values(spec, 1), initial_values(renamed, 1));
}

// Bounds are five standard errors of the estimate over 100 000 elements.
TEST(Initialize, MomentsOfUniform) {
    const double bound = 0.125, n = 100'000;
    const auto m = moments(initial_values(parameter({InitRule::Kind::kUniform, bound}), 3));
    const double variance = bound * bound / 3.0;
    EXPECT_NEAR(m.mean, 0.0, 5.0 * std::sqrt(variance / n));
    EXPECT_NEAR(m.variance, variance, 5.0 * variance * std::sqrt(0.8 / n));
    EXPECT_GE(m.smallest, -bound);
    EXPECT_LE(m.largest, bound);
    EXPECT_LT(m.smallest, -0.999 * bound);
    EXPECT_GT(m.largest, 0.999 * bound);
}

TEST(Initialize, MomentsOfNormal) {
    const double deviation = 0.02, n = 100'000;
    const auto m = moments(initial_values(parameter({InitRule::Kind::kNormal, deviation}), 3));
    const double variance = deviation * deviation;
    EXPECT_NEAR(m.mean, 0.0, 5.0 * deviation / std::sqrt(n));
    EXPECT_NEAR(m.variance, variance, 5.0 * variance * std::sqrt(2.0 / n));
    EXPECT_LT(m.smallest, -3.5 * deviation);
    EXPECT_GT(m.largest, 3.5 * deviation);
}

TEST(Initialize, ConstantFillsExactlyTheRange) {
    std::vector<float> values(5, -7.0F);
    initialize(parameter({InitRule::Kind::kConstant, 1.0}), 3, 10, std::span(values).subspan(1, 3));
    EXPECT_EQ(values, (std::vector<float>{-7, 1, 1, 1, -7}));
}

TEST(Initialize, RangeOutsideTheParameterIsALogicError) {
    const auto spec = parameter({InitRule::Kind::kConstant, 1.0}, {4});
    std::vector<float> values(3);
    EXPECT_NO_THROW(initialize(spec, 1, 1, values));
    EXPECT_NO_THROW(initialize(spec, 1, 4, {}));
    EXPECT_THROW(initialize(spec, 1, 2, values), LogicError);
    EXPECT_THROW(initialize(spec, 1, -1, values), LogicError);
    EXPECT_THROW(initialize(spec, 1, 5, {}), LogicError);
}

}  // namespace
}  // namespace fullshard::spec
