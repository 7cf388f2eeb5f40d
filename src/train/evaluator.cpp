#include "train/evaluator.h"

#include <array>
#include <vector>

namespace fullshard::train {

Evaluator::Evaluator(Engine& engine, const data::ValidationLoader& loader, const comm::Group& world)
    : engine_(engine), loader_(loader), world_(world) {}

Evaluation Evaluator::evaluate() {
    const auto ranks = static_cast<std::size_t>(world_.size());
    std::vector<double> of_round(2 * ranks);
    double loss = 0.0;
    double tokens = 0.0;
    for (std::int64_t round = 0; round < rounds(); ++round) {
        const std::int64_t g = data::micro_batch_index(round, world_.rank(), world_.size());
        loader_.load(g, batch_);
        // Every rank runs every round, because the pass gathers parameters; what lies behind the
        // last window has no valid targets and adds nothing.
        const std::array mine{engine_.evaluate(batch_), static_cast<double>(batch_.valid_targets)};
        world_.all_gather(mine, of_round);
        for (std::size_t rank = 0; rank < ranks; ++rank) {  // in the order of g at any world size
            loss += of_round[2 * rank];
            tokens += of_round[2 * rank + 1];
        }
    }
    return {loss / tokens, static_cast<std::int64_t>(tokens)};
}

}  // namespace fullshard::train
