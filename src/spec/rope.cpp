#include "spec/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fullshard::spec {
namespace {

constexpr double kTurn = 2.0 * std::numbers::pi;

/// The frequency of pair i at base theta: theta^(-2 i / head_size) (Su et al., 2021).
double plain_frequency(double theta, std::int64_t pair, std::int64_t head_size) {
    return std::pow(theta, -2.0 * static_cast<double>(pair) / static_cast<double>(head_size));
}

/// The base at which the slowest pair of a sequence longer than the original turns as far as it did
/// at the original length over `factor` ("NTK-aware", as transformers computes it).
double dynamic_theta(const Rope& rope, std::int64_t head_size, std::int64_t sequence) {
    if (sequence <= rope.original_positions) return rope.theta;
    const double longer =
        static_cast<double>(sequence) / static_cast<double>(rope.original_positions);
    const auto size = static_cast<double>(head_size);
    return rope.theta * std::pow(rope.factor * longer - (rope.factor - 1.0), size / (size - 2.0));
}

/// Pairs that turn more than high_freq_factor times in the original length stay as they are, those
/// that turn less than low_freq_factor times are stretched by `factor`; between the two, both in
/// proportion (Llama 3.1).
double llama3_frequency(const Rope& rope, double frequency) {
    const double turns = static_cast<double>(rope.original_positions) * frequency / kTurn;
    const double kept = std::clamp(
        (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    return (1.0 - kept) * frequency / rope.factor + kept * frequency;
}

/// The pair, a fraction in general, that turns `turns` times in the original length.
double pair_of_turns(const Rope& rope, double turns, std::int64_t head_size) {
    return static_cast<double>(head_size) *
           std::log(static_cast<double>(rope.original_positions) / (turns * kTurn)) /
           (2.0 * std::log(rope.theta));
}

/// A ramp over the pairs' numbers from those that are kept (beta_fast turns) to those that are
/// stretched by `factor` (beta_slow turns), between whole numbers as transformers has it.
void stretch_by_turns(const Rope& rope, std::int64_t head_size, std::vector<double>& frequencies) {
    const double first = std::max(std::floor(pair_of_turns(rope, rope.beta_fast, head_size)), 0.0);
    double last = std::min(std::ceil(pair_of_turns(rope, rope.beta_slow, head_size)),
                           static_cast<double>(head_size - 1));
    if (first == last) last += 0.001;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double stretched =
            std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
        frequencies[i] =
            frequencies[i] / rope.factor * stretched + frequencies[i] * (1.0 - stretched);
    }
}

}  // namespace

RopeTable rope_table(const Rope& rope, std::int64_t head_size, std::int64_t sequence) {
    using Scaling = Rope::Scaling;
    const double theta =
        rope.scaling == Scaling::kDynamic ? dynamic_theta(rope, head_size, sequence) : rope.theta;
    std::vector<double> frequencies;
    for (std::int64_t i = 0; i < head_size / 2; ++i)
        frequencies.push_back(plain_frequency(theta, i, head_size));

    RopeTable table;
    switch (rope.scaling) {
        case Scaling::kNone:
        case Scaling::kDynamic:
            break;
        case Scaling::kLinear:
            for (double& frequency : frequencies) frequency /= rope.factor;
            break;
        case Scaling::kLlama3:
            for (double& frequency : frequencies) frequency = llama3_frequency(rope, frequency);
            break;
        case Scaling::kYarn:
            stretch_by_turns(rope, head_size, frequencies);
            table.magnitude = rope.attention_factor > 0.0 ? rope.attention_factor
                                                          : 0.1 * std::log(rope.factor) + 1.0;
            break;
    }
    table.frequencies.assign(frequencies.begin(), frequencies.end());
    return table;
}

}  // namespace fullshard::spec
