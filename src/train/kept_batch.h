// A run that goes on keeps its global batch, on any number of ranks that can share it.
#pragma once

#include "config/batch.h"
#include "config/deck.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::train {

/// The deck of a run that goes on from one with the deck `before`, whose batch sizes are resolved.
/// Without a train.global_batch of its own it has that run's, train.grad_accum_steps then follows
/// from the number of ranks, and train.micro_batch is that run's too unless the deck names one.
/// Throws UsageError when [elasticity] derives another global batch. Not to be written as a deck:
/// [elasticity] excludes keys that are filled in here.
config::Deck with_kept_batch(config::Deck deck, const config::Deck& before);

/// The batch sizes of that run on `ranks` ranks. `notes` receives a sentence when a
/// train.grad_accum_steps that the deck names gave way. Throws UsageError with the valid numbers of
/// ranks.
config::Batch resolve_kept_batch(const config::Deck& deck, const config::Deck& before,
                                 std::int64_t ranks, std::vector<std::string>& notes);

}  // namespace fullshard::train
