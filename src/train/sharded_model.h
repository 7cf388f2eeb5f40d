// A model on the ranks of a job: what training and evaluation both stand on.
#pragma once

#include "comm/topology.h"
#include "config/batch.h"
#include "config/deck.h"
#include "shard/layout.h"
#include "shard/schedule.h"
#include "shard/strategy.h"
#include "shard/unit_store.h"
#include "spec/simple_transformer.h"
#include "train/engine.h"
#include "train/phases.h"

#include <memory>
#include <string>
#include <vector>

namespace fullshard::train {

/// Nodes, layout, store and engine of a deck, with freshly initialised parameters. Collective to
/// construct and to destroy.
class ShardedModel {
  public:
    /// Throws AgreedError for a store that the ranks' nodes do not allow.
    ShardedModel(const config::Deck& deck, const config::Batch& batch, const comm::Group& job);
    /// Waits for the other ranks: nobody takes memory away while they still read it.
    ~ShardedModel();

    const comm::Topology& topology() const { return topology_; }
    const comm::Group& world() const { return topology_.world; }
    /// Ranks over which gradients are sharded: one where each rank holds them all.
    const comm::Group& gradient_group() const { return gradient_group_; }
    const spec::SimpleTransformer& spec() const { return model_; }
    const shard::Layout& layout() const { return layout_; }
    shard::UnitStore& store() { return *store_; }
    Engine& engine() { return *engine_; }
    PhaseClock& clock() { return clock_; }

    /// Predicted from the layout, for the comparison with what the store says of itself.
    std::vector<shard::Allocation> planned_memory() const;
    shard::Traffic planned_traffic(std::int64_t micro_batches, std::int64_t evaluations) const;

    /// Lines for the banner: ranks and nodes, model, store.
    std::vector<std::string> describe() const;

  private:
    shard::Place place() const;

    comm::Topology topology_;
    comm::NodeLanes lanes_;
    const shard::Strategy& strategy_;
    comm::Group gradient_group_;
    spec::SimpleTransformer model_;
    shard::Layout layout_;
    shard::Schedule schedule_;
    shard::StoreKind store_kind_{};
    shard::StoreOptions store_options_;
    std::unique_ptr<shard::UnitStore> store_;
    PhaseClock clock_;
    std::unique_ptr<Engine> engine_;
};

}  // namespace fullshard::train
