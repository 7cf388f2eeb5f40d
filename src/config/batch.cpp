#include "config/batch.h"

#include "base/error.h"
#include "config/elasticity.h"
#include "config/world_sizes.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace fullshard::config {
namespace {

/// `global / (known * ranks)`, which must be exact.
std::int64_t derive(std::string_view missing, std::int64_t global, std::string_view known_key,
                    std::int64_t known, std::int64_t ranks) {
    const std::int64_t divisor = known * ranks;
    if (global % divisor == 0) return global / divisor;
    const std::int64_t below = global / divisor * divisor;
    const std::vector<std::int64_t> sizes = valid_world_sizes(global, known);
    throw UsageError(fmt::format(
        "train.global_batch = {} is no multiple of {} = {} times {} ranks = {}, so {} cannot be "
        "derived; {}set train.global_batch to {}{}, or change {}",
        global, known_key, known, ranks, divisor, missing,
        sizes.empty() ? "" : fmt::format("run on {}, ", world_sizes_text(sizes, ranks)),
        below > 0 ? fmt::format("{} or ", below) : "", below + divisor, known_key));
}

}  // namespace

Batch resolve_batch(const Train& train, std::int64_t ranks) {
    ensure(ranks > 0, "a run has at least one rank");
    Batch batch{train.micro_batch, train.grad_accum_steps, train.global_batch};
    if (batch.global_batch > 0 && batch.grad_accum_steps > 0 && batch.micro_batch == 0) {
        batch.micro_batch = derive("train.micro_batch", batch.global_batch,
                                   "train.grad_accum_steps", batch.grad_accum_steps, ranks);
        return batch;
    }
    if (batch.micro_batch == 0) batch.micro_batch = kDefaultMicroBatch;
    if (batch.grad_accum_steps == 0) {
        batch.grad_accum_steps = batch.global_batch == 0
                                     ? 1
                                     : derive("train.grad_accum_steps", batch.global_batch,
                                              "train.micro_batch", batch.micro_batch, ranks);
    }
    const std::int64_t of_rank = batch.micro_batch * batch.grad_accum_steps;
    const std::int64_t product = of_rank * ranks;
    if (batch.global_batch != 0 && batch.global_batch != product) {
        throw UsageError(fmt::format(
            "train.global_batch = {} contradicts train.micro_batch = {} times "
            "train.grad_accum_steps = {} times {} ranks = {}; leave one of the three at 0 to have "
            "it derived, or change the number of ranks{}",
            batch.global_batch, batch.micro_batch, batch.grad_accum_steps, ranks, product,
            batch.global_batch % of_rank == 0 ? fmt::format(" to {}", batch.global_batch / of_rank)
                                              : ""));
    }
    batch.global_batch = product;
    return batch;
}

Batch resolve_batch(const Deck& deck, std::int64_t ranks) {
    return deck.elasticity.enabled ? resolve_batch(deck.elasticity, ranks)
                                   : resolve_batch(deck.train, ranks);
}

Deck with_batch(Deck deck, const Batch& batch) {
    deck.train.micro_batch = batch.micro_batch;
    deck.train.grad_accum_steps = batch.grad_accum_steps;
    deck.train.global_batch = batch.global_batch;
    return deck;
}

}  // namespace fullshard::config
