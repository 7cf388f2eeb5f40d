// A training loop without a model: gradients are a closed-form function of (step, micro-batch,
// element) and of the parameters read, so that any wrong byte anywhere changes the result.
#pragma once

#include "comm/topology.h"
#include "shard/schedule.h"
#include "shard/strategy.h"

#include <cstdint>
#include <vector>

namespace fullshard::testing {

struct ToyWorld {
    comm::Topology topology;
    comm::NodeLanes lanes;
};

/// Collective over `ranks`.
ToyWorld make_toy_world(const comm::Group& ranks, int ranks_per_node, bool node_shared);

/// Parameters of sizes that divide by nothing, several units of one size class, one frozen
/// parameter, one that is never written, and a unit with fewer elements than ranks.
spec::ModelSpec toy_model();

/// Runs `steps` steps of `micro_batches` per rank on `store` by the schedule.
void run_toy_training(shard::UnitStore& store, const shard::Layout& layout,
                      const comm::Group& world, std::int64_t steps, std::int64_t micro_batches);

/// All parameters after `initialize_parameters` and toy training, in the model's order without
/// padding, on every rank.
std::vector<float> train_toy(const ToyWorld& world, shard::StoreKind kind, std::int64_t steps,
                             std::int64_t micro_batches, const shard::Faults& faults = {});

/// The same training by plain loops in one process, without any of shard's code but the layout of
/// the specification: the oracle.
std::vector<float> train_toy_serially(std::int64_t steps, std::int64_t micro_batches_of_all_ranks);

}  // namespace fullshard::testing
