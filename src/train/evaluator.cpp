#include "train/evaluator.h"

#include <array>
#include <cmath>

namespace fullshard::train {

namespace {

HeldOutLoss mean_of(double loss, double tokens) {
    return {loss / tokens, static_cast<std::int64_t>(tokens)};
}

}  // namespace

double HeldOutLoss::perplexity() const {
    return std::exp(loss);
}

Evaluator::Evaluator(Engine& engine, std::span<const NamedValidation> parts,
                     const comm::Group& world)
    : engine_(engine),
      parts_(parts),
      world_(world),
      of_round_(3 * static_cast<std::size_t>(world.size())),
      votes_(static_cast<std::size_t>(world.size())) {}

std::optional<Evaluator::Sums> Evaluator::run_part(const data::ValidationLoader& loader,
                                                   StopController& stop) {
    Sums sums;
    for (std::int64_t round = 0; round < loader.rounds(world_.size()); ++round) {
        loader.load(data::micro_batch_index(round, world_.rank(), world_.size()), batch_);
        // Every rank runs every round, because the pass gathers parameters; what lies behind the
        // last window has no valid targets and adds nothing.
        const std::array mine{engine_.evaluate(batch_), static_cast<double>(batch_.valid_targets),
                              stop.vote(world_.rank())};
        world_.all_gather(mine, of_round_);
        ++rounds_run_;
        for (std::size_t rank = 0; rank < votes_.size(); ++rank) {  // in the order of g
            sums.loss += of_round_[3 * rank];
            sums.tokens += of_round_[3 * rank + 1];
            votes_[rank] = of_round_[3 * rank + 2];
        }
        if (stop.judge(votes_)) return std::nullopt;
    }
    return sums;
}

std::optional<Evaluation> Evaluator::evaluate(StopController& stop) {
    rounds_run_ = 0;
    Sums all;
    Evaluation result;
    for (const NamedValidation& part : parts_) {
        const std::optional<Sums> sums = run_part(part.loader, stop);
        if (!sums) return std::nullopt;
        all.loss += sums->loss;
        all.tokens += sums->tokens;
        result.by_source.push_back({mean_of(sums->loss, sums->tokens), part.name});
    }
    static_cast<HeldOutLoss&>(result) = mean_of(all.loss, all.tokens);
    return result;
}

}  // namespace fullshard::train
