#include "train/evaluator.h"

#include <array>

namespace fullshard::train {

Evaluator::Evaluator(Engine& engine, const data::ValidationLoader& loader, const comm::Group& world)
    : engine_(engine),
      loader_(loader),
      world_(world),
      of_round_(3 * static_cast<std::size_t>(world.size())),
      votes_(static_cast<std::size_t>(world.size())) {}

std::optional<Evaluation> Evaluator::evaluate(StopController& stop) {
    double loss = 0.0;
    double tokens = 0.0;
    const std::int64_t rounds = loader_.rounds(world_.size());
    for (rounds_run_ = 0; rounds_run_ < rounds;) {
        const std::int64_t g = data::micro_batch_index(rounds_run_, world_.rank(), world_.size());
        loader_.load(g, batch_);
        // Every rank runs every round, because the pass gathers parameters; what lies behind the
        // last window has no valid targets and adds nothing.
        const std::array mine{engine_.evaluate(batch_), static_cast<double>(batch_.valid_targets),
                              stop.vote(world_.rank())};
        world_.all_gather(mine, of_round_);
        ++rounds_run_;
        for (std::size_t rank = 0; rank < votes_.size(); ++rank) {  // in the order of g
            loss += of_round_[3 * rank];
            tokens += of_round_[3 * rank + 1];
            votes_[rank] = of_round_[3 * rank + 2];
        }
        if (stop.judge(votes_)) return std::nullopt;
    }
    return Evaluation{loss / tokens, static_cast<std::int64_t>(tokens)};
}

}  // namespace fullshard::train
