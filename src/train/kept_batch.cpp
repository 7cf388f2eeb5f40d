#include "train/kept_batch.h"

#include "base/error.h"
#include "config/elasticity.h"
#include "config/world_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace fullshard::train {

namespace {

bool keeps(const config::Deck& deck) {
    return !deck.elasticity.enabled && deck.train.global_batch == 0;
}

/// Another train.micro_batch that lets the ranks share the batch, in words; empty if there is none.
std::string other_micro_batch(std::int64_t global_batch, std::int64_t micro_batch,
                              std::int64_t ranks) {
    if (global_batch % ranks != 0) return {};
    const std::vector<std::int64_t> sizes = config::divisors(global_batch / ranks);
    // Memory allowed the old size, so the nearest below is safe.
    const auto above = std::ranges::upper_bound(sizes, micro_batch);
    return fmt::format("set train.micro_batch = {}, ", *std::prev(above));
}

[[noreturn]] void refuse(const config::Train& kept, std::span<const std::int64_t> sizes,
                         std::int64_t ranks) {
    throw UsageError(fmt::format(
        "the run that goes on has a global batch of {} sequences, which {} rank{} cannot share in "
        "micro-batches of {} (train.micro_batch); {}{}or start a new run with checkpoint.resume = "
        "never (and model.init_from for the weights alone)",
        kept.global_batch, ranks, ranks == 1 ? "" : "s", kept.micro_batch,
        sizes.empty() ? "" : fmt::format("run on {}, ", config::world_sizes_text(sizes, ranks)),
        other_micro_batch(kept.global_batch, kept.micro_batch, ranks)));
}

}  // namespace

config::Deck with_kept_batch(config::Deck deck, const config::Deck& before) {
    const std::int64_t kept = before.train.global_batch;
    if (deck.elasticity.enabled) {
        const std::int64_t derived = config::elastic_batch(deck.elasticity).global_batch;
        if (derived != kept) {
            throw UsageError(fmt::format(
                "the run that goes on has a global batch of {} sequences and [elasticity] gives "
                "{}; set its keys back, or elasticity.enabled = off to keep {}, or start a new run "
                "with checkpoint.resume = never (and model.init_from for the weights alone)",
                kept, derived, kept));
        }
        deck.train.global_batch = kept;
        return deck;
    }
    if (!keeps(deck)) return deck;
    config::Train& train = deck.train;
    train.global_batch = kept;
    train.grad_accum_steps = 0;
    if (train.micro_batch == 0) train.micro_batch = before.train.micro_batch;
    return deck;
}

config::Batch resolve_kept_batch(const config::Deck& deck, const config::Deck& before,
                                 std::int64_t ranks, std::vector<std::string>& notes) {
    const config::Deck kept = with_kept_batch(deck, before);
    if (!keeps(deck)) return config::resolve_batch(kept, ranks);
    const auto sizes = config::valid_world_sizes(kept.train.global_batch, kept.train.micro_batch);
    if (!std::ranges::binary_search(sizes, ranks)) refuse(kept.train, sizes, ranks);
    const config::Batch batch = config::resolve_batch(kept, ranks);
    const std::int64_t named = deck.train.grad_accum_steps;
    if (named > 0 && named != batch.grad_accum_steps) {
        notes.push_back(fmt::format(
            "train.grad_accum_steps = {} gives way to {}: on {} rank{} that keeps the run's global "
            "batch of {} sequences",
            named, batch.grad_accum_steps, ranks, ranks == 1 ? "" : "s", batch.global_batch));
    }
    return batch;
}

}  // namespace fullshard::train
