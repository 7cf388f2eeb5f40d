// Text that a model writes.
#pragma once

#include "base/log.h"
#include "comm/group.h"
#include "config/deck.h"
#include "train/run.h"

namespace fullshard::train {

/// Continues the prompt of [generate] with the weights in model.init_from and prints prompt and
/// continuation of each sample to standard output, on rank 0. The ranks share the samples; each
/// token is a forward pass of the sharded model over what there is so far, or its last
/// model.max_positions (data.sequence) tokens. Which tokens are drawn depends on generate.seed and
/// the sample's number, not on the ranks. Returns kDone, or kStoppedEarly when asked to stop before
/// the end; nothing is printed then. Collective.
ExitCode run_generation(const config::Deck& deck, const comm::Group& job,
                        const RunEnvironment& environment, Log& log);

}  // namespace fullshard::train
