// A whole training set-up in a few lines, on any sub-world of the test job.
#pragma once

#include "comm/group.h"
#include "config/deck.h"
#include "model/model.h"
#include "optim/adamw.h"
#include "spec/simple_transformer.h"
#include "train/evaluator.h"
#include "train/sharded_model.h"
#include "train/step_decision.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::testing {

/// How ranks hold the state.
struct Sharding {
    std::string name;
    config::Shard shard = {};
    config::Reduce reduce = {};
    config::Fault fault = {};
    std::int64_t ranks_per_node = 0;
    bool node_shared = true;
    std::int64_t activation_checkpointing = 0;
    bool progress_thread = false;
};

/// NO_SHARD: every rank has everything; the reference.
Sharding unsharded();
/// FULL_SHARD in the given store.
Sharding full_shard(config::Store store);
/// Every store that runs on `ranks` ranks, with emulated nodes where they fit.
std::vector<Sharding> shardings(int ranks);

struct RigOptions {
    Sharding sharding = {};
    std::int64_t micro_batches = 1;  ///< per rank and step
    std::uint64_t seed = 0;
    config::Optimizer optimizer = {};
    config::Precision precision = {};
    config::Gemm gemm = config::Gemm::kPreferred;
    /// By the code of devices, on memory of the host; `reduce.order` is fast then.
    bool on_device = false;
};

class TrainingRig {
  public:
    /// Collective over `ranks`, as everything below.
    TrainingRig(const comm::Group& ranks, const spec::SimpleTransformer& model,
                const RigOptions& options);
    TrainingRig(const comm::Group& ranks, std::shared_ptr<const model::Model> model,
                const RigOptions& options);

    struct Step {
        double loss = 0.0;
        double grad_norm = 0.0;  ///< unscaled, before clipping
        double loss_scale = 1.0;
    };
    /// Loads micro-batch g of a step.
    using Load = std::function<data::TokenBatch(std::int64_t g)>;

    /// Forward, backward and reduction of all micro-batches, without the update.
    Step accumulate(std::int64_t step, const Load& load, std::int64_t valid_targets);
    /// Clips and updates as the options say; false when the step is skipped. Throws RunError for
    /// one at which a run would abort.
    bool update(double lr);
    /// Held-out loss with the parameters as they are; nobody asks to stop.
    train::Evaluation evaluate(const data::ValidationLoader& loader);

    std::vector<std::vector<float>> parameters();
    std::vector<std::vector<float>> gradients();
    const shard::Layout& layout() const { return sharded_.layout(); }
    const comm::Group& world() const { return sharded_.world(); }
    const comm::Group& gradient_group() const { return sharded_.gradient_group(); }
    const comm::Group& replicas() const { return sharded_.replicas(); }
    shard::UnitStore& store() { return sharded_.store(); }
    train::Engine& engine() { return sharded_.engine(); }
    optim::AdamW& optimizer() { return optimizer_; }
    train::StepJudge& judge() { return judge_; }
    train::ShardedModel& sharded() { return sharded_; }

  private:
    config::Deck deck_;
    train::ShardedModel sharded_;
    optim::AdamW optimizer_;
    train::StepJudge judge_;
    train::StepFacts facts_;  ///< of the last step that was accumulated
    double loss_scale_ = 1.0;
};

}  // namespace fullshard::testing
