// Loss on held-out data.
#pragma once

#include "comm/group.h"
#include "data/loader.h"
#include "train/engine.h"

#include <cstdint>

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

    /// Collective.
    Evaluation evaluate();

    /// Forward passes of one evaluation on each rank.
    std::int64_t rounds() const { return loader_.rounds(world_.size()); }

  private:
    Engine& engine_;
    const data::ValidationLoader& loader_;
    const comm::Group& world_;
    data::TokenBatch batch_;
};

}  // namespace fullshard::train
