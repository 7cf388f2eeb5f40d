// Rotary position embedding and its published variants for longer sequences.
#pragma once

#include <cstdint>
#include <vector>

namespace fullshard::spec {

struct Rope {
    enum class Scaling : std::uint8_t {
        kNone,
        kLinear,   ///< positions divided by `factor` (Chen et al., 2023)
        kDynamic,  ///< NTK-aware: the base grows with the sequence at hand
        kLlama3,   ///< long wavelengths stretched, short ones kept, a ramp between (Llama 3.1)
        kYarn,     ///< the same by turns, and warmer attention (Peng et al., 2023)
    };
    double theta = 10'000.0;
    Scaling scaling = Scaling::kNone;
    double factor = 1.0;                  ///< how many times longer
    std::int64_t original_positions = 0;  ///< length of pretraining, tokens
    double low_freq_factor = 1.0;         ///< kLlama3
    double high_freq_factor = 4.0;        ///< kLlama3
    double beta_fast = 32.0;              ///< kYarn, turns
    double beta_slow = 1.0;               ///< kYarn, turns
    double attention_factor = 0.0;        ///< kYarn; 0: 0.1 ln(factor) + 1

    bool operator==(const Rope&) const = default;
};

/// Angles per position, in radians, of the head_size / 2 pairs of a head, and a factor of cosine
/// and sine alike. Pair i are elements i and i + head_size / 2 of a head, as transformers has them.
struct RopeTable {
    std::vector<float> frequencies;
    double magnitude = 1.0;
};

/// For a sequence of `sequence` tokens, on which only kDynamic depends.
RopeTable rope_table(const Rope& rope, std::int64_t head_size, std::int64_t sequence);

}  // namespace fullshard::spec
