#include "optim/adamw.h"

#include "base/error.h"
#include "base/rng.h"
#include "support/allocation_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

namespace fullshard::optim {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kLr = 1e-2;
constexpr AdamWOptions kOptions{.weight_decay = 0.1};
constexpr ParameterSettings kDecay = kOptions.default_settings(true);
constexpr ParameterSettings kNoDecay = kOptions.default_settings(false);

std::vector<float> normals(std::uint64_t key, std::size_t count) {
    const RandomStream stream(key);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(stream.normal(i));
    return values;
}

// With zero moments the bias corrections cancel the betas: m_hat = g and v_hat = g^2.
double after_first_step(double param, double gradient, bool decay) {
    const double decayed = param * (1 - (decay ? kLr * kOptions.weight_decay : 0.0));
    return decayed - kLr * gradient / (std::abs(gradient) + kOptions.eps);
}

TEST(AdamW, FirstStepInClosedFormForBothDecayClasses) {
    auto param = normals(1, 100);
    const auto start = param, gradient = normals(2, 100);
    AdamW optimizer(kOptions, {{param, {{0, 37, kDecay}, {37, 41, kNoDecay}, {41, 100, kDecay}}}});
    optimizer.begin_step();
    optimizer.step(0, gradient, kLr);
    for (std::int64_t i = 0; i < 100; ++i) {
        const bool decay = i < 37 || i >= 41;
        EXPECT_NEAR(param[i], after_first_step(start[i], gradient[i], decay), 5e-7) << i;
        EXPECT_FLOAT_EQ(optimizer.first_moment(0).as<float>()[i], 0.1f * gradient[i]);
        EXPECT_FLOAT_EQ(optimizer.second_moment(0).as<float>()[i], 0.001f * gradient[i] * gradient[i]);
    }
}

TEST(AdamW, DecayAloneShrinksOnlyItsClass) {
    std::vector<float> param(20, 1.0f);
    const std::vector<float> gradient(20, 0.0f);
    AdamW optimizer(kOptions, {{param, {{10, 20, kNoDecay}, {0, 10, kDecay}}}});
    for (int step = 0; step < 3; ++step) {
        optimizer.begin_step();
        optimizer.step(0, gradient, kLr);
    }
    for (int i = 0; i < 10; ++i) EXPECT_FLOAT_EQ(param[i], std::pow(1 - kLr * 0.1, 3.0));
    for (int i = 10; i < 20; ++i) EXPECT_EQ(param[i], 1.0f);
}

TEST(AdamW, PaddingIsNeitherReadNorWritten) {
    const std::vector<ShardRange> ranges{{3, 20, kDecay}, {25, 26, kNoDecay}, {30, 61, kDecay}};
    const auto is_padding = [&](std::int64_t i) {
        return std::ranges::none_of(ranges,
                                    [i](const auto& r) { return r.begin <= i && i < r.end; });
    };
    auto param = normals(1, 64), gradient = normals(2, 64);
    std::uint32_t poison_bits = 0x7fc0beef;  // a NaN that arithmetic would not produce
    float poison;
    std::memcpy(&poison, &poison_bits, sizeof(poison));
    for (std::int64_t i = 0; i < 64; ++i) {
        if (!is_padding(i)) continue;
        param[i] = poison;
        gradient[i] = kNan;
    }
    AdamW optimizer(kOptions, {{param, ranges}});
    for (int step = 0; step < 3; ++step) {
        optimizer.begin_step();
        optimizer.step(0, gradient, kLr);
    }
    for (std::int64_t i = 0; i < 64; ++i) {
        if (is_padding(i)) {
            EXPECT_EQ(std::memcmp(&param[i], &poison_bits, sizeof(float)), 0) << i;
            if (i >= 61) continue;  // behind the last range there are no moments
            EXPECT_EQ(optimizer.first_moment(0).as<float>()[i], 0.0f) << i;
            EXPECT_EQ(optimizer.second_moment(0).as<float>()[i], 0.0f) << i;
        } else {
            EXPECT_TRUE(std::isfinite(param[i])) << i;
            EXPECT_NE(optimizer.second_moment(0).as<float>()[i], 0.0f) << i;
        }
    }
}

// One rank with everything against shards cut at odd places, some of them empty.
TEST(AdamW, ShardingDoesNotChangeABit) {
    constexpr std::int64_t kCount = 500;
    const ShardRange no_decay{120, 333, kNoDecay};
    auto whole = normals(1, kCount), cut = whole;
    AdamW one(kOptions, {{whole, {{0, 120, kDecay}, no_decay, {333, kCount, kDecay}}}});

    const std::vector<std::int64_t> ends{0, 1, 130, 131, 131, 400, kCount};
    std::vector<OptimizerShard> shards;
    for (std::size_t k = 0; k + 1 < ends.size(); ++k) {
        const std::int64_t begin = ends[k], end = ends[k + 1];
        std::vector<ShardRange> ranges;
        for (const ShardRange& r : {ShardRange{0, 120, kDecay}, no_decay, {333, kCount, kDecay}}) {
            const std::int64_t first = std::max(r.begin, begin), last = std::min(r.end, end);
            if (first < last) ranges.push_back({first - begin, last - begin, r.settings});
        }
        shards.push_back({std::span(cut).subspan(begin, end - begin), ranges});
    }
    AdamW many(kOptions, shards);
    ASSERT_EQ(many.unit_count(), 6);
    for (int step = 0; step < 4; ++step) {
        const auto gradient = normals(10 + step, kCount);
        one.begin_step();
        one.step(0, gradient, kLr / (step + 1));
        many.begin_step();
        for (std::int64_t k = many.unit_count() - 1; k >= 0; --k) {
            many.step(k, std::span(gradient).subspan(ends[k], ends[k + 1] - ends[k]),
                      kLr / (step + 1));
        }
    }
    EXPECT_EQ(std::memcmp(whole.data(), cut.data(), kCount * sizeof(float)), 0);
}

TEST(AdamW, DefaultSettingsFollowTheDecayClass) {
    EXPECT_EQ(kDecay, (ParameterSettings{1, 0.1}));
    EXPECT_EQ(kNoDecay, (ParameterSettings{1, 0}));
}

// Groups in one unit against an optimizer of its own for each, with the group's rate and decay.
TEST(AdamW, GroupsWithRatesAndDecaysOfTheirOwn) {
    struct Group {
        std::int64_t begin, end;
        ParameterSettings settings;
    };
    const std::vector<Group> groups{
        {0, 70, {1, 0.1}}, {70, 71, {0.25, 0}}, {71, 200, {10, 0.3}}, {200, 300, {0, 0.5}}};
    auto together = normals(1, 300);
    auto apart = together;
    const auto start = together;

    OptimizerShard shard{together, {}};
    std::vector<OptimizerShard> single;
    for (const Group& g : groups) {
        shard.ranges.push_back({g.begin, g.end, g.settings});
        single.push_back({std::span(apart).subspan(g.begin, g.end - g.begin),
                          {{0, g.end - g.begin, {1, g.settings.weight_decay}}}});
    }
    AdamW one(kOptions, {shard}), many(kOptions, single);
    for (int step = 0; step < 4; ++step) {
        const auto gradient = normals(10 + step, 300);
        one.begin_step();
        many.begin_step();
        one.step(0, gradient, kLr);
        for (std::size_t k = 0; k < groups.size(); ++k) {
            const Group& g = groups[k];
            many.step(static_cast<std::int64_t>(k),
                      std::span(gradient).subspan(g.begin, g.end - g.begin),
                      kLr * g.settings.lr_factor);
        }
        if (step > 0) continue;
        for (const Group& g : groups) {
            const double lr = kLr * g.settings.lr_factor;
            for (std::int64_t i = g.begin; i < g.end; ++i) {
                const double expected = start[i] * (1 - lr * g.settings.weight_decay) -
                                        lr * gradient[i] / (std::abs(double{gradient[i]}) + 1e-8);
                EXPECT_NEAR(together[i], expected, 1e-6) << i;
            }
        }
    }
    EXPECT_EQ(std::memcmp(together.data(), apart.data(), 300 * sizeof(float)), 0);
    // A rate of zero leaves parameters alone.
    EXPECT_EQ(std::memcmp(&together[200], &start[200], 100 * sizeof(float)), 0);
}

TEST(AdamW, FrozenParametersHaveNoMomentsAndStay) {
    auto mixed = normals(1, 100), frozen = normals(2, 50);
    const auto mixed_start = mixed, frozen_start = frozen;
    AdamW optimizer(kOptions, {{mixed, {{8, 30, kNoDecay}, {0, 8, kDecay}}}, {frozen, {}}});
    EXPECT_EQ(optimizer.first_moment(0).count, 30);
    EXPECT_EQ(optimizer.second_moment(0).count, 30);
    EXPECT_EQ(optimizer.first_moment(1).count, 0);
    EXPECT_EQ(optimizer.second_moment(1).count, 0);
    EXPECT_EQ(optimizer.state_bytes(), AdamW::state_bytes(30));
    optimizer.begin_step();
    optimizer.step(0, normals(3, 100), kLr);
    optimizer.step(1, normals(4, 50), kLr);
    for (std::size_t i = 0; i < 30; ++i) EXPECT_NE(mixed[i], mixed_start[i]) << i;
    EXPECT_TRUE(std::equal(mixed.begin() + 30, mixed.end(), mixed_start.begin() + 30));
    EXPECT_EQ(frozen, frozen_start);
}

// A gradient that was scaled by 1024 and is unscaled by the step; then clipped by value.
TEST(AdamW, TreatsGradientsOnTheirWayIn) {
    const auto plain = normals(2, 100);
    auto scaled = plain, clamped = plain;
    for (float& g : scaled) g *= 1024;
    for (float& g : clamped) g = std::clamp(g, -0.5f, 0.5f);
    auto expected = normals(1, 100), unscaled = expected, expected_clamped = expected,
         treated = expected;
    AdamW optimizer(kOptions, {{expected, {{0, 60, kDecay}, {60, 100, kNoDecay}}},
                               {unscaled, {{0, 60, kDecay}, {60, 100, kNoDecay}}},
                               {expected_clamped, {{0, 100, kDecay}}},
                               {treated, {{0, 100, kDecay}}}});
    optimizer.begin_step();
    optimizer.step(0, plain, kLr);
    optimizer.step(1, scaled, kLr, {.factor = 1.0 / 1024});
    optimizer.step(2, clamped, kLr);
    optimizer.step(3, scaled, kLr, {.factor = 1.0 / 1024, .clip_value = 0.5});
    EXPECT_EQ(unscaled, expected);
    EXPECT_EQ(treated, expected_clamped);
    for (std::int64_t i = 0; i < 100; ++i) {
        EXPECT_EQ(optimizer.second_moment(1).as<float>()[i], optimizer.second_moment(0).as<float>()[i]);
        EXPECT_EQ(optimizer.second_moment(3).as<float>()[i], optimizer.second_moment(2).as<float>()[i]);
    }
}

TEST(AdamW, SteadyStepsAllocateNothing) {
    auto param = normals(1, 1000);
    const auto gradient = normals(2, 1000);
    AdamW optimizer(kOptions, {{param, {{0, 500, kDecay}, {500, 1000, kNoDecay}}}});
    const std::int64_t before = allocation_count();
    ASSERT_GT(before, 0);
    for (int step = 0; step < 3; ++step) {
        optimizer.begin_step();
        optimizer.step(0, gradient, kLr);
    }
    EXPECT_EQ(allocation_count(), before);
}

TEST(AdamW, CountsStepsAndBytes) {
    std::vector<float> a(10), b(7);
    AdamW optimizer(kOptions, {{a, {{0, 9, kDecay}}}, {b, {{0, 7, kDecay}}}, {{}, {}}});
    EXPECT_EQ(optimizer.step_count(), 0);
    optimizer.begin_step();
    optimizer.begin_step();
    EXPECT_EQ(optimizer.step_count(), 2);
    EXPECT_EQ(optimizer.state_bytes(), 2 * 4 * 16);
    EXPECT_EQ(AdamW::state_bytes(16), optimizer.state_bytes());
}

TEST(AdamW, AsksReadersBeforeAUnitChanges) {
    struct Reader : StateReader {
        explicit Reader(std::span<const float> watched) : param(watched) {}
        void finish_reading(std::int64_t unit) override {
            units.push_back(unit);
            seen.push_back(param[0]);
        }
        std::span<const float> param;
        std::vector<std::int64_t> units;
        std::vector<float> seen;
    };
    auto first = normals(1, 8), second = normals(2, 8);
    const float old = second[0];
    const auto gradient = normals(3, 8);
    AdamW optimizer(kOptions, {{first, {{0, 8, kDecay}}}, {second, {{0, 8, kDecay}}}});
    Reader reader(second), removed(second);
    optimizer.add_reader(removed);
    optimizer.add_reader(reader);
    optimizer.remove_reader(removed);
    optimizer.begin_step();
    for (const std::int64_t unit : {1, 0}) optimizer.step(unit, gradient, kLr);
    EXPECT_EQ(reader.units, (std::vector<std::int64_t>{1, 0}));
    EXPECT_EQ(reader.seen, (std::vector<float>{old, second[0]}));
    EXPECT_NE(second[0], old);
    EXPECT_TRUE(removed.units.empty());
}

TEST(AdamW, RefusesBrokenRangesAndDoubleUpdates) {
    std::vector<float> param(10);
    const auto with = [&](std::vector<ShardRange> ranges) {
        return AdamW(kOptions, {{param, std::move(ranges)}});
    };
    EXPECT_THROW(with({{0, 11, kDecay}}), LogicError);
    EXPECT_THROW(with({{-1, 5, kDecay}}), LogicError);
    EXPECT_THROW(with({{5, 4, kDecay}}), LogicError);
    EXPECT_THROW(with({{4, 8, kDecay}, {0, 5, kNoDecay}}), LogicError);

    AdamW optimizer = with({{4, 8, kDecay}, {0, 4, kNoDecay}, {10, 10, kDecay}});
    EXPECT_THROW(optimizer.step(0, param, kLr), LogicError);  // before begin_step()
    optimizer.begin_step();
    EXPECT_THROW(optimizer.step(0, std::span(param).first(9), kLr), LogicError);
    optimizer.step(0, param, kLr);
    EXPECT_THROW(optimizer.step(0, param, kLr), LogicError);
}

}  // namespace
}  // namespace fullshard::optim
