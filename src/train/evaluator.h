// Loss on held-out data.
#pragma once

#include "comm/group.h"
#include "data/loader.h"
#include "train/engine.h"
#include "train/stop_controller.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace fullshard::train {

struct Evaluation {
    double loss = 0.0;        ///< mean cross-entropy per valid token, nats
    std::int64_t tokens = 0;  ///< valid targets that were predicted
};

/// Evaluates validation batches, spread over the ranks like micro-batches. The result has equal
/// bits at any world size and leaves no trace in training.
class Evaluator {
  public:
    Evaluator(Engine& engine, const data::ValidationLoader& loader, const comm::Group& world);

    /// Nothing where the ranks agreed on the way to stop. Collective.
    std::optional<Evaluation> evaluate(StopController& stop);

    /// Forward passes of the last evaluation on each rank.
    std::int64_t rounds_run() const { return rounds_run_; }

  private:
    Engine& engine_;
    const data::ValidationLoader& loader_;
    const comm::Group& world_;
    data::TokenBatch batch_;
    std::int64_t rounds_run_ = 0;
    std::vector<double> of_round_;  ///< loss, tokens and vote on stopping of each rank
    std::vector<double> votes_;
};

}  // namespace fullshard::train
