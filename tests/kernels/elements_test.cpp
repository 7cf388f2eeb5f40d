// The arithmetic of the CUDA kernels, run on the host: what each thread of a launch does, one
// thread after the other.
#include "base/rng.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/elements/elementwise.h"
#include "kernels/elements/packets.h"
#include "kernels/elements/softmax.h"
#include "kernels/elements/square_window.h"
#include "kernels/elements/stochastic_rounding.h"
#include "kernels/square_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace fullshard::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Notes how often each element is visited, and that packets are aligned.
struct VisitBody {
    const BFloat16* first;
    const float* second;
    std::vector<int>& visits;
    std::int64_t& packets;

    template <std::size_t kCount>
    void at(std::int64_t i) const {
        if (kCount > 1) {
            ++packets;
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first + i) % (2 * kCount), 0u);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(second + i) % (4 * kCount), 0u);
        }
        for (std::size_t k = 0; k < kCount; ++k) ++visits[static_cast<std::size_t>(i) + k];
    }
};

TEST(Packets, VisitEveryElementOnceAndAligned) {
    alignas(64) const std::array<BFloat16, 256> first{};
    alignas(64) const std::array<float, 256> second{};
    constexpr std::size_t kWidth = kPacketElements<BFloat16, float>;
    static_assert(kWidth == 4 && kPacketElements<BFloat16, BFloat16> == 8);
    for (std::int64_t count = 0; count < 40; ++count) {
        for (std::size_t a = 0; a < 8; ++a) {
            for (std::size_t b = 0; b < 8; ++b) {
                std::vector<int> visits(static_cast<std::size_t>(count));
                std::int64_t packets = 0;
                const VisitBody body{first.data() + a, second.data() + b, visits, packets};
                const PacketCut cut =
                    cut_into_packets(count, kWidth, {{body.first, 2}, {body.second, 4}, Operand{}});
                for (std::int64_t thread = 0; thread < 3; ++thread)
                    go_over<kWidth>(cut, thread, 3, body);
                EXPECT_EQ(std::ranges::count(visits, 1), count);
                const auto head = static_cast<std::int64_t>((kWidth - a % kWidth) % kWidth);
                const bool together = a % kWidth == b % kWidth;
                EXPECT_EQ(packets, together ? std::max<std::int64_t>(0, count - head) / 4 : 0);
            }
        }
    }
}

template <std::size_t kWidth, typename Body>
void run(const Body& body, std::int64_t count, std::initializer_list<Operand> operands) {
    constexpr std::int64_t kThreads = 7;
    const PacketCut cut = cut_into_packets(count, kWidth, operands);
    for (std::int64_t thread = kThreads; thread-- > 0;)
        go_over<kWidth>(cut, thread, kThreads, body);
}

std::vector<float> normals(std::uint64_t key, std::size_t count, double scale) {
    const RandomStream stream(key);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(scale * stream.normal(i));
    return values;
}

template <typename T>
bool equal_bits(std::span<const T> a, std::span<const T> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

TEST(ElementwiseBodies, ConvertAndScaleAsTheCpuKernelsDo) {
    auto source = normals(1, 1003, 10.0);
    source[3] = kNan;
    source[500] = kInfinity;
    source[501] = 1e-41f;
    const auto count = static_cast<std::int64_t>(source.size());
    std::vector<Float16> half(source.size()), expected_half(source.size());
    run<4>(ConvertBody<float, Float16>{source.data(), half.data()}, count,
           {{source.data(), 4}, {half.data(), 2}});
    narrow(source, std::span(expected_half));
    EXPECT_TRUE(equal_bits<Float16>(half, expected_half));

    std::vector<BFloat16> other(source.size()), expected_other(source.size());
    run<8>(ConvertBody<Float16, BFloat16>{half.data(), other.data()}, count,
           {{half.data(), 2}, {other.data(), 2}});
    convert(std::span(half), std::span(expected_other));
    EXPECT_TRUE(equal_bits<BFloat16>(other, expected_other));

    std::vector<float> scaled(source.size());
    widen(std::span(other), scaled);
    for (float& value : scaled) value *= 0.1f;
    narrow(scaled, std::span(expected_other));
    run<8>(ScaleBody<BFloat16>{other.data(), 0.1f}, count, {{other.data(), 2}});
    EXPECT_TRUE(equal_bits<BFloat16>(other, expected_other));
}

TEST(ElementwiseBodies, UpdateAsTheCpuKernelDoes) {
    auto param = normals(1, 1001, 1.0), m = normals(2, 1001, 0.1), v = normals(3, 1001, 0.1);
    const auto gradient = normals(4, 1001, 0.1);
    for (float& value : v) value *= value;
    auto expected_param = param, expected_m = m, expected_v = v;
    const AdamWScalars scalars = adamw_scalars({.lr = 0.01, .weight_decay = 0.1, .step = 5});
    std::vector<BFloat16> copy(param.size()), expected_copy(param.size());
    run<4>(
        AdamWBody<BFloat16, Rounding::kNearest>{param.data(), gradient.data(), m.data(), v.data(),
                                                scalars, copy.data(), 0, 0},
        1001,
        {{param.data(), 4}, {gradient.data(), 4}, {m.data(), 4}, {v.data(), 4}, {copy.data(), 2}});
    adamw_update(expected_param, gradient, expected_m, expected_v, scalars);
    narrow(expected_param, std::span(expected_copy));
    EXPECT_TRUE(equal_bits<float>(param, expected_param));
    EXPECT_TRUE(equal_bits<float>(m, expected_m));
    EXPECT_TRUE(equal_bits<float>(v, expected_v));
    EXPECT_TRUE(equal_bits<BFloat16>(copy, expected_copy));
}

TEST(StochasticRounding, KeepsNumbersOfBfloat16AndGoesUpAsOftenAsItShould) {
    for (const std::uint32_t random : {0u, 1u, 0x8000u, 0xffffu}) {
        for (const float value : {0.0f, -0.0f, 1.0f, -2.5f, kInfinity, -kInfinity}) {
            EXPECT_EQ(std::bit_cast<std::uint32_t>(to_float(round_stochastic(value, random))),
                      std::bit_cast<std::uint32_t>(value));
        }
        EXPECT_TRUE(
            std::isnan(to_float(round_stochastic(std::bit_cast<float>(0x7f800001), random))));
        EXPECT_TRUE(std::isnan(to_float(round_stochastic(-kNan, random))));
    }
    // All 2^16 random numbers: a quarter of the way up, a quarter of them go up.
    const float value = 1.0f + 0.25f / 128;
    int up = 0;
    for (std::uint32_t random = 0; random < 1u << 16; ++random)
        up += to_float(round_stochastic(value, random)) > 1.0f ? 1 : 0;
    EXPECT_EQ(up, 1 << 14);
    up = 0;
    for (std::uint32_t random = 0; random < 1u << 16; ++random)
        up += to_float(round_stochastic(-value, random)) < -1.0f ? 1 : 0;
    EXPECT_EQ(up, 1 << 14);
}

TEST(StochasticRounding, BitsDoNotDependOnTheGroup) {
    constexpr std::uint64_t kKey = 42;
    for (std::uint64_t first = 0; first < 9; ++first) {
        const auto four = rounding_bits<4>(kKey, first);
        for (std::uint64_t k = 0; k < 4; ++k)
            EXPECT_EQ(four[k], rounding_bits<1>(kKey, first + k)[0]);
    }
    EXPECT_NE(rounding_bits<4>(kKey, 0), rounding_bits<4>(kKey + 1, 0));
    EXPECT_NE(rounding_bits<4>(kKey, 0), rounding_bits<4>(kKey, std::uint64_t{1} << 34));
}

/// Sums up by windows of some threads, each of which takes every n-th value.
class Windows {
  public:
    Windows(std::span<const float> values, std::size_t threads, bool placed) {
        const auto add_to_bin = [this](std::uint32_t bin, std::uint32_t amount) {
            sum_.bins()[bin] += amount;
            ++additions_;
        };
        for (std::size_t thread = 0; thread < threads; ++thread) {
            SquareWindow window;
            if (placed && thread < values.size()) window.place(values[thread]);
            for (std::size_t i = thread; i < values.size(); i += threads)
                window.add(values[i], add_to_bin);
            // What a warp asks of a window: its digits, and nothing beyond them.
            for (std::uint32_t bin = 0; bin < SquareSum::kWeightBins; ++bin) {
                const bool mine =
                    bin >= window.first_bin() && bin < window.first_bin() + SquareWindow::kDigits;
                if (mine)
                    sum_.bins()[bin] += window.digit(bin);
                else
                    EXPECT_EQ(window.digit(bin), 0u);
            }
        }
    }

    const SquareSum& sum() const { return sum_; }
    std::int64_t additions() const { return additions_; }

  private:
    SquareSum sum_;
    std::int64_t additions_ = 0;
};

void expect_exact(std::span<const float> values, std::size_t threads) {
    SquareSum expected;
    expected.add(values);
    for (const bool placed : {false, true}) {
        const Windows windows(values, threads, placed);
        SquareSum actual = windows.sum();
        const float zero = 0;
        actual.add({&zero, 1});  // passes carries on
        EXPECT_TRUE(std::ranges::equal(actual.bins(), expected.bins()))
            << actual.value() << ", " << expected.value();
    }
}

TEST(SquareWindow, IsExactForAllFloats) {
    expect_exact({}, 1);
    const RandomStream stream(1);
    std::vector<float> values(5000);
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(stream.bits(i)));
    values[7] = std::numeric_limits<float>::max();
    values[8] = std::numeric_limits<float>::denorm_min();
    values[9] = kInfinity;
    values[10] = kNan;
    expect_exact(values, 1);
    expect_exact(values, 13);
}

TEST(SquareWindow, IsExactAtItsEdges) {
    // Runs of numbers whose mantissas are all ones, at each distance of binades.
    for (int low = -149; low < 100; low += 9) {
        for (int distance = 0; distance < 28; ++distance) {
            std::vector<float> values;
            for (int i = 0; i < 20; ++i) {
                values.push_back(std::ldexp(0x1.fffffep0f, low));
                values.push_back(-std::ldexp(0x1.fffffep0f, low + distance));
            }
            expect_exact(values, 1);
        }
    }
    std::vector<float> largest(1 << 14, std::numeric_limits<float>::max());
    expect_exact(largest, 1);
}

TEST(SquareWindow, SeldomLeavesRegistersForGradients) {
    auto values = normals(3, 100000, 1e-3);
    for (std::size_t i = 0; i < values.size(); i += 3) values[i] = 0.0f;
    const Windows windows(values, 100, true);
    // Up to 5 additions a move, and few moves: most of those few threads whose first value is
    // small.
    EXPECT_LT(windows.additions(), 100);
}

TEST(SquareWindow, MovesNoFurtherThanItMust) {
    // Both fit into one window, but not into the one around the first.
    for (const float other : {0x1p24f, 0x1p-24f}) {
        std::vector<float> values;
        for (int i = 0; i < 1000; ++i) values.push_back(i % 2 == 0 ? 1.0f : other);
        EXPECT_LE(Windows(values, 1, true).additions(), SquareWindow::kDigits) << other;
    }
}

/// What a block of `threads` threads computes of a row, packet by packet.
float log_sum_exp_by_threads(std::span<const float> logits, std::size_t threads) {
    constexpr std::size_t kWidth = 8;
    std::vector<SoftmaxSum> sums(threads);
    for (std::size_t first = 0; first < logits.size(); first += kWidth) {
        float packet[kWidth];
        for (std::size_t k = 0; k < kWidth; ++k)
            packet[k] = first + k < logits.size() ? logits[first + k] : -kInfinity;
        sums[first / kWidth % threads].add(packet);
    }
    SoftmaxSum total;
    for (const SoftmaxSum& sum : sums) total.add(sum);
    return total.log_sum_exp();
}

TEST(SoftmaxSum, AgreesWithTheSumInDouble) {
    for (const double scale : {0.01, 1.0, 30.0, 1e5}) {
        for (const std::size_t count : {1, 5, 8, 1000, 50257}) {
            auto logits = normals(5, count, scale);
            // Each packet raises the largest value: the sum is scaled again and again.
            for (const bool sorted : {false, true}) {
                if (sorted) std::ranges::sort(logits);
                const double largest = std::ranges::max(logits);
                const double sum = std::accumulate(
                    logits.begin(), logits.end(), 0.0,
                    [&](double s, float logit) { return s + std::exp(logit - largest); });
                const double expected = largest + std::log(sum);
                const double scale_of_error = std::max(1.0, std::abs(expected));
                EXPECT_NEAR(log_sum_exp_by_threads(logits, 256), expected, 2e-7 * scale_of_error)
                    << scale << ", " << count;
                // As many as a thread of a launch has in a large vocabulary.
                if (count > 1000) continue;
                EXPECT_NEAR(log_sum_exp_by_threads(logits, 1), expected, 2e-6 * scale_of_error)
                    << scale << ", " << count;
            }
        }
    }
}

TEST(SoftmaxSum, PassesOnWhatIsNotFinite) {
    std::vector<float> logits(3000, -kInfinity);
    logits[2999] = 2.5f;
    EXPECT_EQ(log_sum_exp_by_threads(logits, 256), 2.5f);
    logits[0] = kNan;
    EXPECT_TRUE(std::isnan(log_sum_exp_by_threads(logits, 256)));
    logits[0] = kInfinity;
    EXPECT_TRUE(std::isnan(log_sum_exp_by_threads(logits, 256)));
    std::ranges::fill(logits, -kInfinity);
    logits[77] = kNan;
    EXPECT_TRUE(std::isnan(log_sum_exp_by_threads(logits, 256)));
}

TEST(SoftmaxSum, DoesNotDependOnTheOrderOfTwo) {
    const RandomStream stream(6);
    for (std::uint64_t i = 0; i < 100; ++i) {
        SoftmaxSum a{static_cast<float>(stream.normal(2 * i)), 1.5f};
        SoftmaxSum b{static_cast<float>(stream.normal(2 * i + 1)), 2.75f};
        const SoftmaxSum before = a;
        a.add(b);
        b.add(before);
        EXPECT_EQ(a.largest, b.largest);
        EXPECT_EQ(a.sum, b.sum);
    }
}

}  // namespace
}  // namespace fullshard::kernels
