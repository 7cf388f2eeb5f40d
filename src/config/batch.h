// Batch sizes once the number of ranks is known.
#pragma once

#include "config/deck.h"

#include <cstdint>

namespace fullshard::config {

/// Sequences a rank computes at once when nothing determines it.
inline constexpr std::int64_t kDefaultMicroBatch = 4;

/// global_batch == micro_batch * grad_accum_steps * ranks, all positive.
struct Batch {
    std::int64_t micro_batch = 0;       ///< sequences of one rank in one forward and backward pass
    std::int64_t grad_accum_steps = 0;  ///< micro-batches of one rank in one step
    std::int64_t global_batch = 0;      ///< sequences of one step over all ranks

    bool operator==(const Batch&) const = default;
};

/// Derives what `train` leaves at 0. Without global_batch it is the product of the others, whose
/// defaults are kDefaultMicroBatch and 1. With global_batch, the one of the others that is missing
/// follows from it (grad_accum_steps when both are). Throws UsageError naming keys, values and
/// remedy, the numbers of ranks that fit among them, when the three contradict each other at
/// `ranks` ranks.
Batch resolve_batch(const Train& train, std::int64_t ranks);

/// The same, or what [elasticity] derives where it is enabled (config/elasticity.h).
Batch resolve_batch(const Deck& deck, std::int64_t ranks);

/// The deck with these batch sizes.
Deck with_batch(Deck deck, const Batch& batch);

}  // namespace fullshard::config
