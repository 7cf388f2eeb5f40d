// Which token comes next.
#pragma once

#include <cstdint>
#include <span>

namespace fullshard::train {

struct Sampling {
    double temperature = 1.0;  ///< 0: the most likely token
    std::int64_t top_k = 0;    ///< the most likely ones that may be drawn; 0: all
    double top_p = 1.0;        ///< in (0, 1]: of those, the fewest that have this probability
};

/// Draws from softmax(logits / temperature) without what `top_k` and then `top_p` cut off (nucleus
/// sampling: Holtzman et al., 2020). `uniform` in [0, 1) decides; of equally likely tokens the
/// lower one counts as more likely. Throws RunError when a logit is not a number or none is finite.
std::int64_t draw_token(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace fullshard::train
