// Runs a model's stages by the schedule of visits over a store: the only part of training that
// sees tensors.
#pragma once

#include "data/loader.h"
#include "shard/layout.h"
#include "shard/schedule.h"
#include "shard/unit_store.h"
#include "spec/simple_transformer.h"
#include "train/phases.h"

#include <cstdint>
#include <memory>
#include <string>

namespace fullshard::train {

/// Which micro-batch of the run this is: dropout depends on it and on nothing else.
struct MicroBatchId {
    std::int64_t step = 0;
    std::int64_t index = 0;  ///< g, over all ranks
};

/// Forward: each visit takes its unit's lease, starts the next unit's unshard and runs the unit's
/// stages as an autograd graph of their own. Backward: in reverse, each visit differentiates its
/// graph and starts the reduction of the unit's gradient. There are no hooks.
class Engine {
  public:
    /// Binds views of the store's memory to stages. `threads` compute threads; all references must
    /// outlive the engine.
    Engine(const spec::SimpleTransformer& model, const shard::Layout& layout,
           const shard::Schedule& schedule, shard::UnitStore& store, PhaseClock& clock,
           std::uint64_t seed, int threads);
    ~Engine();

    /// Forward and backward pass; gradients go to the store. Returns the summed loss times
    /// `loss_factor`. Collective over the store's ranks.
    double train(const data::TokenBatch& batch, const MicroBatchId& id, double loss_factor);

    /// Summed loss over the valid targets without dropout, gradients or any effect on later
    /// training. Collective over the store's ranks.
    double evaluate(const data::TokenBatch& batch);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Vector instructions that the compute library uses here, for example "AVX2": results of other
/// ones have other bits.
std::string cpu_capability();

}  // namespace fullshard::train
