#include "base/philox.h"
#include "kernels/operands.h"
#include "kernels/stream_kernels_test.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fullshard::kernels {
namespace {

using namespace fullshard::testing;

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
            for (const Shape& shape : shapes(rig_->large_count())) {
                AdamWState state(1, shape.count);
                const AdamWMemory memory = put<Copy>(*rig_, state, shape);
                rig_->kernels().adamw_update(memory, scalars, std::nullopt, rig_->stream());
                adamw_update(state.param, state.gradient, state.m, state.v, scalars);
                expect_bits(rig_->get<float>(memory.param), state.param);
                expect_bits(rig_->get<float>(memory.gradient), state.gradient);
                expect_bits(rig_->get<float>(memory.first_moment), state.m);
                expect_bits(rig_->get<float>(memory.second_moment), state.v);
                expect_elements(rig_->get<Copy>(memory.copy), [&](std::size_t i) {
                    return double{rounded_to(DTypeOf<Copy>::value, state.param[i])};
                });
            }
        });
    }
}

TEST_P(StreamKernelsTest, AdamWWithoutACopy) {
    AdamWState state(1, 1003);
    AdamWMemory memory = put<float>(*rig_, state, {1003, 1, 1});
    memory.copy = {};
    rig_->kernels().adamw_update(memory, adamw_scalars(kSettings), std::nullopt, rig_->stream());
    adamw_update(state.param, state.gradient, state.m, state.v, adamw_scalars(kSettings));
    expect_bits(rig_->get<float>(memory.param), state.param);
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
        for (const Shape& shape : shapes(rig_->large_count())) {
            AdamWState state(1, shape.count);
            const AdamWMemory memory = put<BFloat16>(*rig_, state, shape);
            rig_->kernels().adamw_update(memory, adamw_scalars(kSettings),
                                         StochasticRounding{kKey, first}, rig_->stream());
            adamw_update(state.param, state.gradient, state.m, state.v, adamw_scalars(kSettings));
            expect_bits(rig_->get<float>(memory.param), state.param);
            expect_elements(rig_->get<BFloat16>(memory.copy), [&](std::size_t i) {
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
    const AdamWMemory memory = put<BFloat16>(*rig_, state, {count, 0, 0});
    AdamWSettings settings = kSettings;
    settings.weight_decay = 0;
    rig_->kernels().adamw_update(memory, adamw_scalars(settings), StochasticRounding{11, 0},
                                 rig_->stream());
    double sum = 0;
    for (const BFloat16 value : rig_->get<BFloat16>(memory.copy)) sum += number(value);
    // Two values, a distance of 1/128 apart, one with probability 0.3.
    const double deviation = std::sqrt(0.3 * 0.7 / count) / 128;
    EXPECT_NEAR(sum / count, kValue, 5 * deviation);
}

}  // namespace
}  // namespace fullshard::kernels
