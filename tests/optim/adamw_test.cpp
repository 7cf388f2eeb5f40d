#include "optim/adamw.h"

#include "base/error.h"
#include "base/rng.h"
#include "support/allocation_counter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace fullshard::optim {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kLr = 1e-2;
constexpr AdamWOptions kOptions{.weight_decay = 0.1};

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
    AdamW optimizer(kOptions, {{param, {{0, 37, true}, {37, 41, false}, {41, 100, true}}}});
    optimizer.begin_step();
    optimizer.step(0, gradient, kLr);
    for (std::int64_t i = 0; i < 100; ++i) {
        const bool decay = i < 37 || i >= 41;
        EXPECT_NEAR(param[i], after_first_step(start[i], gradient[i], decay), 5e-7) << i;
        EXPECT_FLOAT_EQ(optimizer.first_moment(0)[i], 0.1f * gradient[i]);
        EXPECT_FLOAT_EQ(optimizer.second_moment(0)[i], 0.001f * gradient[i] * gradient[i]);
    }
}

TEST(AdamW, DecayAloneShrinksOnlyItsClass) {
    std::vector<float> param(20, 1.0f);
    const std::vector<float> gradient(20, 0.0f);
    AdamW optimizer(kOptions, {{param, {{10, 20, false}, {0, 10, true}}}});
    for (int step = 0; step < 3; ++step) {
        optimizer.begin_step();
        optimizer.step(0, gradient, kLr);
    }
    for (int i = 0; i < 10; ++i) EXPECT_FLOAT_EQ(param[i], std::pow(1 - kLr * 0.1, 3.0));
    for (int i = 10; i < 20; ++i) EXPECT_EQ(param[i], 1.0f);
}

TEST(AdamW, PaddingIsNeitherReadNorWritten) {
    const std::vector<ShardRange> ranges{{3, 20, true}, {25, 26, false}, {30, 61, true}};
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
            EXPECT_EQ(optimizer.first_moment(0)[i], 0.0f) << i;
            EXPECT_EQ(optimizer.second_moment(0)[i], 0.0f) << i;
        } else {
            EXPECT_TRUE(std::isfinite(param[i])) << i;
            EXPECT_NE(optimizer.second_moment(0)[i], 0.0f) << i;
        }
    }
}

// One rank with everything against shards cut at odd places, some of them empty.
TEST(AdamW, ShardingDoesNotChangeABit) {
    constexpr std::int64_t kCount = 500;
    const ShardRange no_decay{120, 333, false};
    auto whole = normals(1, kCount), cut = whole;
    AdamW one(kOptions, {{whole, {{0, 120, true}, no_decay, {333, kCount, true}}}});

    const std::vector<std::int64_t> ends{0, 1, 130, 131, 131, 400, kCount};
    std::vector<OptimizerShard> shards;
    for (std::size_t k = 0; k + 1 < ends.size(); ++k) {
        const std::int64_t begin = ends[k], end = ends[k + 1];
        std::vector<ShardRange> ranges;
        for (const ShardRange& r : {ShardRange{0, 120, true}, no_decay, {333, kCount, true}}) {
            const std::int64_t first = std::max(r.begin, begin), last = std::min(r.end, end);
            if (first < last) ranges.push_back({first - begin, last - begin, r.decay});
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

TEST(AdamW, SteadyStepsAllocateNothing) {
    auto param = normals(1, 1000);
    const auto gradient = normals(2, 1000);
    AdamW optimizer(kOptions, {{param, {{0, 500, true}, {500, 1000, false}}}});
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
    AdamW optimizer(kOptions, {{a, {{0, 9, true}}}, {b, {{0, 7, true}}}, {{}, {}}});
    EXPECT_EQ(optimizer.step_count(), 0);
    optimizer.begin_step();
    optimizer.begin_step();
    EXPECT_EQ(optimizer.step_count(), 2);
    EXPECT_EQ(optimizer.state_bytes(), 2 * 4 * 17);
    EXPECT_EQ(AdamW::state_bytes(17), optimizer.state_bytes());
}

TEST(AdamW, RefusesBrokenRangesAndDoubleUpdates) {
    std::vector<float> param(10);
    const auto with = [&](std::vector<ShardRange> ranges) {
        return AdamW(kOptions, {{param, std::move(ranges)}});
    };
    EXPECT_THROW(with({{0, 11, true}}), LogicError);
    EXPECT_THROW(with({{-1, 5, true}}), LogicError);
    EXPECT_THROW(with({{5, 4, true}}), LogicError);
    EXPECT_THROW(with({{4, 8, true}, {0, 5, false}}), LogicError);

    AdamW optimizer = with({{4, 8, true}, {0, 4, false}, {10, 10, true}});
    EXPECT_THROW(optimizer.step(0, param, kLr), LogicError);  // before begin_step()
    optimizer.begin_step();
    EXPECT_THROW(optimizer.step(0, std::span(param).first(9), kLr), LogicError);
    optimizer.step(0, param, kLr);
    EXPECT_THROW(optimizer.step(0, param, kLr), LogicError);
}

}  // namespace
}  // namespace fullshard::optim
