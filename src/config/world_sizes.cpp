#include "config/world_sizes.h"

#include "base/error.h"
#include "config/batch.h"
#include "config/elasticity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fullshard::config {

std::vector<std::int64_t> divisors(std::int64_t number) {
    ensure(number > 0, "only positive numbers have divisors here");
    std::vector<std::int64_t> small;
    std::vector<std::int64_t> large;
    for (std::int64_t i = 1; i <= number / i; ++i) {
        if (number % i != 0) continue;
        small.push_back(i);
        if (i != number / i) large.push_back(number / i);
    }
    small.insert(small.end(), large.rbegin(), large.rend());
    return small;
}

std::vector<std::int64_t> valid_world_sizes(std::int64_t global_batch, std::int64_t micro_batch) {
    if (global_batch % micro_batch != 0) return {};
    return divisors(global_batch / micro_batch);
}

std::optional<std::vector<std::int64_t>> valid_world_sizes(const Deck& deck) {
    if (deck.elasticity.enabled) return elastic_batch(deck.elasticity).world_sizes;
    const Train& train = deck.train;
    if (train.global_batch == 0) return std::nullopt;
    const std::int64_t accumulated = std::max<std::int64_t>(train.grad_accum_steps, 1);
    if (train.micro_batch > 0 && train.grad_accum_steps > 0) {
        const std::int64_t of_rank = train.micro_batch * accumulated;
        if (train.global_batch % of_rank != 0) return std::vector<std::int64_t>{};
        return std::vector{train.global_batch / of_rank};
    }
    // The one of micro_batch and grad_accum_steps that is given must divide; the other follows.
    const std::int64_t given = train.micro_batch > 0        ? train.micro_batch
                               : train.grad_accum_steps > 0 ? accumulated
                                                            : kDefaultMicroBatch;
    return valid_world_sizes(train.global_batch, given);
}

std::string world_sizes_text(std::span<const std::int64_t> sizes, std::int64_t ranks) {
    constexpr std::ptrdiff_t kMost = 16;
    ensure(!sizes.empty(), "there are sizes to name");
    const auto count = static_cast<std::ptrdiff_t>(sizes.size());
    if (count == 1) return fmt::format("{} rank{}", sizes[0], sizes[0] == 1 ? "" : "s");
    if (count <= kMost) {
        return fmt::format("{} or {} ranks", fmt::join(sizes.first(sizes.size() - 1), ", "),
                           sizes.back());
    }
    const std::ptrdiff_t middle = std::ranges::lower_bound(sizes, ranks) - sizes.begin();
    const std::ptrdiff_t first = std::clamp<std::ptrdiff_t>(middle - kMost / 2, 0, count - kMost);
    const auto shown = sizes.subspan(static_cast<std::size_t>(first), kMost);
    return fmt::format("{}{}{} ranks ({} sizes in all; --print-world-sizes lists them)",
                       first > 0 ? "..., " : "", fmt::join(shown, ", "),
                       first + kMost < count ? ", ..." : "", count);
}

std::string world_sizes_table(const Deck& deck) {
    const auto sizes = valid_world_sizes(deck);
    if (!sizes) {
        const Batch batch = resolve_batch(deck, 1);
        return fmt::format(
            "any number of ranks: train.global_batch is not set, so a step has {} (micro_batch) * "
            "{} (grad_accum_steps) * ranks sequences\n",
            batch.micro_batch, batch.grad_accum_steps);
    }
    std::string text = fmt::format("{:>10}  {:>11}  {:>16}  {:>12}\n", "ranks", "micro_batch",
                                   "grad_accum_steps", "global_batch");
    for (const std::int64_t ranks : *sizes) {
        const Batch batch = resolve_batch(deck, ranks);
        text += fmt::format("{:>10}  {:>11}  {:>16}  {:>12}\n", ranks, batch.micro_batch,
                            batch.grad_accum_steps, batch.global_batch);
    }
    return text;
}

}  // namespace fullshard::config
