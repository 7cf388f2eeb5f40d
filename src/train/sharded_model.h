// A model on the ranks of a job: what training and evaluation both stand on.
#pragma once

#include "model/model.h"
#include "shard/unit_store.h"
#include "train/engine.h"
#include "train/phases.h"
#include "train/run_device.h"
#include "train/sharding_plan.h"
#include "train/trace.h"

#include <memory>
#include <string>
#include <vector>

namespace fullshard::train {

/// Plan, store and engine of a model, with freshly initialised parameters. Collective to construct
/// and to destroy.
class ShardedModel {
  public:
    /// `spec` is the model's with parameter groups applied; `gemm` multiplies the stages' fp32
    /// matrices. Throws AgreedError for what the ranks and their nodes do not allow.
    /// `device` is the one to compute on in place of the deck's: null asks the deck.
    ShardedModel(const config::Deck& deck, const config::Batch& batch,
                 std::shared_ptr<const model::Model> model, const spec::ModelSpec& spec,
                 std::shared_ptr<const kernels::Gemm> gemm, const comm::Group& job,
                 std::unique_ptr<RunDevice> device = nullptr);
    /// Waits for the other ranks: nobody takes memory away while they still read it.
    ~ShardedModel();

    const ShardingPlan& plan() const { return plan_; }
    const comm::Topology& topology() const { return plan_.topology; }
    const comm::Group& world() const { return plan_.topology.world; }
    /// Ranks over which gradients are sharded.
    const comm::Group& gradient_group() const { return plan_.mesh.shard_group; }
    /// Ranks that own the same ranges.
    const comm::Group& replicas() const { return plan_.mesh.replicas; }
    const shard::Layout& layout() const { return plan_.layout; }
    shard::UnitStore& store() { return *store_; }
    /// For an optimizer over the store.
    std::unique_ptr<optim::StateDevice> make_state();
    Engine& engine() { return *engine_; }
    PhaseClock& clock() { return clock_; }
    /// On which the model computes; null: the CPU.
    const RunDevice* device() const { return device_.get(); }

    /// Shows what this rank does on `trace`, which outlives its use here.
    void show_on(StepTrace& trace);

    /// Lines for the banner: ranks and nodes, model, types, store.
    std::vector<std::string> describe() const;

  private:
    std::shared_ptr<const model::Model> model_;
    ShardingPlan plan_;
    std::unique_ptr<RunDevice> device_;  ///< null on the CPU
    std::unique_ptr<shard::UnitStore> store_;
    PhaseClock clock_;
    std::unique_ptr<Engine> engine_;
};

}  // namespace fullshard::train
