#include "train/sharding_plan.h"

#include "base/error.h"
#include "comm/agree.h"
#include "train/parameter_groups.h"
#include "train/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

namespace fullshard::train {

namespace {

/// A group that is the whole shard group gathers like every other unit.
void fit_regathering(shard::StoreOptions& options, std::int64_t shards) {
    if (options.residency != shard::Residency::kSmallerGroup) return;
    if (shards % options.regather_ranks != 0) {
        throw UsageError(fmt::format(
            "shard.reshard_after_forward = {} does not divide the {} ranks of a shard group; use a "
            "divisor, or on",
            options.regather_ranks, shards));
    }
    if (options.regather_ranks < shards) return;
    options.residency = shard::Residency::kWhileUsed;
    options.regather_ranks = 0;
}

/// Messages between nodes take long enough for the thread to pay even where it takes its turns on
/// the CPU that computes. Within a node it would only move the sums of gradients there.
bool wants_progress_thread(const config::Deck& deck, const ShardingPlan& plan) {
    switch (deck.comm.progress_thread) {
        case config::ProgressThread::kOn:
            return true;
        case config::ProgressThread::kOff:
            return false;
        case config::ProgressThread::kAuto:
            break;
    }
    return plan.topology.nodes() > 1 ||
           (plan.places.size() > 1 && comm::have_cpus(plan.places, deck.kernels.threads + 1));
}

std::int64_t trainable_numel(const shard::Layout& layout) {
    std::int64_t sum = 0;
    for (const shard::Unit& unit : layout.units) {
        for (const spec::ParameterSpec& parameter : unit.parameters()) {
            if (parameter.trainable) sum += parameter.numel();
        }
    }
    return sum;
}

}  // namespace

ShardingPlan plan_sharding(const config::Deck& deck, const config::Batch& batch,
                           const spec::ModelSpec& model, const comm::Group& job) {
    ShardingPlan plan{
        .topology = comm::find_topology(job, static_cast<int>(deck.topology.ranks_per_node)),
        .places = {},
        .strategy = &strategy_of(deck.shard),
        .mesh = {},
        .layout = {},
        .options = store_options_of(deck, batch),
        .schedule = {}};
    plan.places = comm::gather_places(plan.topology);
    std::int64_t shards = 1;
    comm::agree(job, [&] {
        shards = shard::group_size(*plan.strategy, deck.shard.group_size, plan.topology);
        fit_regathering(plan.options, shards);
        plan.layout = shard::make_layout(model, shards, wrap_of(deck.shard));
    });
    plan.schedule =
        shard::make_schedule(plan.layout, plan.options.residency, prefetch_of(deck.shard));
    comm::agree_equal(job, "schedule of visits", plan.schedule.hash(plan.layout));
    plan.mesh = comm::make_mesh(plan.topology, static_cast<int>(shards), deck.comm.node_shared);
    comm::agree(job, [&] {
        plan.kind =
            deck.device.kind == config::Processor::kCpu
                ? shard::choose_store(*plan.strategy, preference_of(deck.shard), plan.place())
                : shard::StoreKind::kDevice;
    });
    plan.options.progress_thread = plan.kind != shard::StoreKind::kPrivate &&
                                   plan.kind != shard::StoreKind::kDevice &&
                                   wants_progress_thread(deck, plan);
    return plan;
}

bool has_uneven_group(std::span<const int> node_sizes, std::int64_t shards) {
    const std::int64_t ranks =
        std::accumulate(node_sizes.begin(), node_sizes.end(), std::int64_t{0});
    for (std::int64_t first = 0; first < ranks; first += shards) {
        std::int64_t on_first_node = 0;
        std::int64_t node_begin = 0;
        for (const int size : node_sizes) {
            const std::int64_t of_group =
                std::min(first + shards, node_begin + size) - std::max(first, node_begin);
            node_begin += size;
            if (of_group <= 0) continue;
            if (on_first_node == 0) on_first_node = of_group;
            if (of_group != on_first_node) return true;
        }
    }
    return false;
}

PlannedModel plan_model(const config::Deck& deck, const ModelFactory& custom_model,
                        const comm::Group& job) {
    config::Batch batch;
    spec::ModelSpec spec;
    comm::agree(job, [&] {
        batch = config::resolve_batch(deck, job.size());
        spec = with_groups(make_model(deck, custom_model)->spec(), deck.optimizer);
    });
    ShardingPlan plan = plan_sharding(deck, batch, spec, job);
    return {std::move(spec), std::move(plan)};
}

std::vector<shard::Allocation> ShardingPlan::memory() const {
    auto items = shard::plan_memory(kind, layout, schedule, place(), options);
    items.push_back({"AdamW moments", planned_moment_bytes(layout, place().shard())});
    return items;
}

shard::Traffic ShardingPlan::traffic(const shard::Work& work) const {
    return shard::plan_traffic(kind, layout, schedule, place(), options, work);
}

std::vector<std::string> ShardingPlan::describe() const {
    const std::int64_t trainable = trainable_numel(layout);
    const std::string frozen = trainable == layout.numel()
                                   ? ""
                                   : fmt::format(" ({} of them trained)", count_text(trainable));
    const std::string replicas =
        place().replicas == 1 || strategy->keeps_everything()
            ? ""
            : fmt::format(" over {} ranks, {} replicas", layout.shards, place().replicas);
    std::vector<std::string> lines{
        topology.describe(),
        fmt::format("model: {} parameters{} in {} units, {}{}", count_text(layout.numel()), frozen,
                    layout.units.size(), strategy->name, replicas)};
    if (options.compute != DType::kFloat32 || options.reduce != DType::kFloat32) {
        lines.push_back(fmt::format("precision: {} computes, {} reduces, fp32 master parameters",
                                    name_of(options.compute), name_of(options.reduce)));
    }
    return lines;
}

ShardingPlan::MemorySums ShardingPlan::memory_sums() const {
    MemorySums sums;
    for (const shard::Allocation& item : memory()) {
        (item.node_shared ? sums.node_shared : sums.rank) += item.bytes;
    }
    // Several shard groups on a node, or the ranks of a flat plan, share nothing with one another.
    const std::int64_t ranks = std::ranges::max(topology.node_sizes);
    const std::int64_t sharing = mesh.lanes.node.size();
    sums.node = ranks * sums.rank + (ranks + sharing - 1) / sharing * sums.node_shared;
    return sums;
}

std::string ShardingPlan::units_text(const spec::ModelSpec& model, std::size_t most_rows) const {
    std::optional<shard::SlotPlan> slots;
    if (kind == shard::StoreKind::kSlotted) {
        slots = shard::plan_parameter_slots(layout, schedule, options, place());
    }
    std::string text =
        units_table(model, layout, slots ? &*slots : nullptr, options.compute, most_rows) + '\n';
    for (const shard::Allocation& item : memory()) {
        text += fmt::format("{:<50}{:>14}  {}\n", item.purpose, bytes_text(item.bytes),
                            item.node_shared ? "a node" : "a rank");
    }
    return text;
}

}  // namespace fullshard::train
