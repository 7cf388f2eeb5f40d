#include "config/elasticity.h"

#include "base/error.h"
#include "config/world_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace fullshard::config {
namespace {

/// Highly composite numbers: each has more divisors than every smaller number.
constexpr std::array<std::int64_t, 38> kHighlyComposite{
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

/// In units of nodes: a number is of nodes, a batch one of the ranks with equal number on each.
struct Limits {
    std::int64_t batch = 0;
    std::int64_t min_nodes = 0;
    std::int64_t max_nodes = 0;
};

Limits limits_of(const Elasticity& elasticity) {
    const std::int64_t ranks = elasticity.ranks_per_node;
    return {elasticity.max_train_batch_size / ranks, (elasticity.min_ranks + ranks - 1) / ranks,
            elasticity.max_ranks / ranks};
}

/// The micro-batches and their least common multiple, as far as the maximum allows.
std::vector<std::int64_t> bases_of(const std::vector<std::int64_t>& micro_batches,
                                   std::int64_t max_batch) {
    std::vector<std::int64_t> bases = micro_batches;
    std::int64_t multiple = 1;
    for (const std::int64_t micro_batch : micro_batches) {
        multiple = std::lcm(multiple, micro_batch);
        if (multiple > max_batch) return bases;
    }
    bases.push_back(multiple);
    return bases;
}

std::int64_t candidate_of(std::int64_t base, std::int64_t max_batch) {
    const auto above = std::ranges::upper_bound(kHighlyComposite, max_batch / base);
    return *std::prev(above) * base;
}

std::vector<std::int64_t> nodes_that_fit(const std::vector<std::int64_t>& micro_batches,
                                         std::int64_t batch, const Limits& limits) {
    std::set<std::int64_t> found;
    for (const std::int64_t micro_batch : micro_batches) {
        for (const std::int64_t nodes : valid_world_sizes(batch, micro_batch)) {
            if (nodes >= limits.min_nodes && nodes <= limits.max_nodes) found.insert(nodes);
        }
    }
    return {found.begin(), found.end()};
}

}  // namespace

ElasticBatch elastic_batch(const Elasticity& elasticity) {
    const Limits limits = limits_of(elasticity);
    const std::vector<std::int64_t>& micro_batches = elasticity.micro_batch_sizes;
    ensure(!micro_batches.empty() && std::ranges::max(micro_batches) <= limits.batch,
           "each micro-batch fits the largest global batch");
    ElasticBatch best;
    for (const std::int64_t base : bases_of(micro_batches, limits.batch)) {
        const std::int64_t batch = candidate_of(base, limits.batch);
        std::vector<std::int64_t> sizes = nodes_that_fit(micro_batches, batch, limits);
        const bool preferred =
            elasticity.prefer_larger_batch ? batch > best.global_batch : batch < best.global_batch;
        if (sizes.size() > best.world_sizes.size() ||
            (sizes.size() == best.world_sizes.size() && preferred)) {
            best = {batch, std::move(sizes)};
        }
    }
    best.global_batch *= elasticity.ranks_per_node;
    for (std::int64_t& size : best.world_sizes) size *= elasticity.ranks_per_node;
    return best;
}

Batch resolve_batch(const Elasticity& elasticity, std::int64_t ranks) {
    const auto [global_batch, world_sizes] = elastic_batch(elasticity);
    ensure(!world_sizes.empty(), "a deck allows some number of ranks");
    if (!std::ranges::binary_search(world_sizes, ranks)) {
        throw UsageError(fmt::format(
            "{} rank{} cannot share the global batch of {} sequences that [elasticity] gives; run "
            "on {}, or change elasticity.max_train_batch_size, micro_batch_sizes, min_ranks, "
            "max_ranks or ranks_per_node",
            ranks, ranks == 1 ? "" : "s", global_batch, world_sizes_text(world_sizes, ranks)));
    }
    const std::int64_t of_rank = global_batch / ranks;
    std::int64_t micro_batch = 0;
    for (const std::int64_t size : elasticity.micro_batch_sizes) {
        if (of_rank % size == 0) micro_batch = std::max(micro_batch, size);
    }
    return {micro_batch, of_rank / micro_batch, global_batch};
}

}  // namespace fullshard::config
