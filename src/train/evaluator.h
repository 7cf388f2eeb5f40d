// Loss on held-out data.
#pragma once

#include "comm/group.h"
#include "data/token_batch.h"
#include "train/datasets.h"
#include "train/engine.h"
#include "train/stop_controller.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::train {

/// Mean cross-entropy per valid token, in nats, of all held-out data or those of one source.
struct HeldOutLoss {
    double loss = 0.0;        ///< NaN where no token counts
    std::int64_t tokens = 0;  ///< valid targets that were predicted

    double perplexity() const;
};

struct SourceLoss : HeldOutLoss {
    std::string source;
};

struct Evaluation : HeldOutLoss {
    std::vector<SourceLoss> by_source;
};

/// Evaluates the held-out data of all sources, one after the other, batches spread over the ranks
/// like micro-batches. The result has equal bits at any world size and leaves no trace in training.
class Evaluator {
  public:
    /// `parts` outlive it.
    Evaluator(Engine& engine, std::span<const NamedValidation> parts, const comm::Group& world);

    /// Nothing where the ranks agreed on the way to stop. Collective.
    std::optional<Evaluation> evaluate(StopController& stop);

    /// Forward passes of the last evaluation on each rank.
    std::int64_t rounds_run() const { return rounds_run_; }

  private:
    /// Sums of losses and tokens; nothing where the ranks agreed to stop.
    struct Sums {
        double loss = 0.0;
        double tokens = 0.0;
    };
    std::optional<Sums> run_part(const data::ValidationLoader& loader, StopController& stop);

    Engine& engine_;
    std::span<const NamedValidation> parts_;
    const comm::Group& world_;
    data::TokenBatch batch_;
    std::int64_t rounds_run_ = 0;
    std::vector<double> of_round_;  ///< loss, tokens and vote on stopping of each rank
    std::vector<double> votes_;
};

}  // namespace fullshard::train
