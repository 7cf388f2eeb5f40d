// A whole training set-up in a few lines, on any sub-world of the test job.
#pragma once

#include "comm/group.h"
#include "comm/topology.h"
#include "optim/adamw.h"
#include "shard/schedule.h"
#include "shard/strategy.h"
#include "spec/simple_transformer.h"
#include "train/engine.h"
#include "train/phases.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::testing {

/// How ranks hold the state.
struct Sharding {
    std::string name;
    shard::StoreKind kind = shard::StoreKind::kResident;
    int ranks_per_node = 0;
    bool node_shared = true;
    shard::Faults faults = {};
};

/// Every store that runs on `ranks` ranks, with emulated nodes where they fit.
std::vector<Sharding> shardings(int ranks);

class TrainingRig {
  public:
    /// Collective over `ranks`, as everything below.
    TrainingRig(const comm::Group& ranks, const spec::SimpleTransformer& model,
                const Sharding& sharding, std::int64_t micro_batches, std::uint64_t seed,
                const optim::AdamWOptions& options = {});
    ~TrainingRig();

    struct Step {
        double loss = 0.0;
        double grad_norm = 0.0;
    };
    /// Loads micro-batch g of a step.
    using Load = std::function<data::TokenBatch(std::int64_t g)>;

    /// Forward, backward and reduction of all micro-batches, without the update.
    Step accumulate(std::int64_t step, const Load& load, std::int64_t valid_targets);
    void update(double lr);

    std::vector<std::vector<float>> parameters();
    std::vector<std::vector<float>> gradients();
    const shard::Layout& layout() const { return layout_; }
    const comm::Group& world() const { return topology_.world; }
    const comm::Group& gradient_group() const { return gradient_group_; }
    shard::UnitStore& store() { return *store_; }
    train::Engine& engine() { return *engine_; }
    optim::AdamW& optimizer() { return *optimizer_; }
    train::PhaseClock& clock() { return clock_; }

  private:
    comm::Topology topology_;
    comm::Group gradient_group_;
    shard::Layout layout_;
    shard::Schedule schedule_;
    std::unique_ptr<shard::UnitStore> store_;
    std::unique_ptr<optim::AdamW> optimizer_;
    train::PhaseClock clock_;
    std::unique_ptr<train::Engine> engine_;
    std::int64_t micro_batches_;
};

}  // namespace fullshard::testing
