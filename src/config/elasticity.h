// One global batch for many numbers of ranks: the arithmetic of DeepSpeed's "elasticity", whose
// algorithm 0.1 counts ranks and 0.2 nodes of `ranks_per_node` ranks. Unlike there, limits hold
// always, and no number of ranks gets a global batch of its own (the fallback of 0.2): a run could
// not go on with another one.
#pragma once

#include "config/batch.h"
#include "config/deck.h"

#include <cstdint>
#include <vector>

namespace fullshard::config {

struct ElasticBatch {
    std::int64_t global_batch = 0;          ///< sequences of one step over all ranks
    std::vector<std::int64_t> world_sizes;  ///< numbers of ranks that can share it, ascending
};

/// The global batch, at most the maximum, that fits the largest number of world sizes within the
/// limits. Candidates are multiples of the micro-batches and of their least common multiple by
/// highly composite numbers; a world size fits when its ranks can share the batch equally in
/// micro-batches of one of the listed sizes. No world sizes when none is within the limits.
/// contradictions() of the deck has found nothing else.
ElasticBatch elastic_batch(const Elasticity& elasticity);

/// The batch sizes at `ranks` ranks: of the listed micro-batches the largest that fits. Throws
/// UsageError listing the valid numbers of ranks when `ranks` is none.
Batch resolve_batch(const Elasticity& elasticity, std::int64_t ranks);

}  // namespace fullshard::config
