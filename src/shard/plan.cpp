#include "shard/plan.h"

#include <algorithm>
#include <bit>

namespace fullshard::shard {

namespace {

constexpr std::int64_t kFloat = 4;

std::int64_t accumulator_levels(const StoreOptions& options) {
    return std::bit_width(static_cast<std::uint64_t>(options.micro_batches));
}

std::int64_t largest_padded(const Layout& layout) {
    return std::ranges::max(layout.units, {}, &Unit::padded).padded();
}

/// Two counters a gradient slot; two a resident unit or three a parameter slot. 16 counters of 8
/// bytes share two cache lines.
std::int64_t counter_bytes(std::int64_t parameter_counters, std::size_t gradient_slots,
                           const Place& place) {
    const std::int64_t counters =
        parameter_counters + 2 * static_cast<std::int64_t>(gradient_slots);
    return (counters + 15) / 16 * 128 * place.node_size;
}

}  // namespace

std::vector<Allocation> plan_memory(StoreKind kind, const Layout& layout, const Place& place,
                                    const StoreOptions& options) {
    const std::int64_t flat = kFloat * layout.padded();
    const std::int64_t ranks = place.shards();
    if (kind == StoreKind::kPrivate) {
        const std::int64_t block = (largest_padded(layout) + ranks - 1) / ranks;
        return {{"private parameters", flat},
                {"gradients (tree over micro-batches)", flat * accumulator_levels(options)},
                {"all-reduce receive buffers", kFloat * block * (ranks - 1)}};
    }
    const bool shared = place.node_size > 1;
    const SlotPlan gradient_slots = make_slot_plan(layout, options.gradient_slots);
    const SlotPlan parameter_slots = make_slot_plan(layout, options.parameter_slots);
    const std::int64_t largest_shard = kFloat * largest_padded(layout) / ranks;

    std::vector<Allocation> plan{
        {"gradient shards (tree over micro-batches)", flat / ranks * accumulator_levels(options)}};
    if (place.lane_size > 1 && shared)
        plan.push_back({"lane staging", largest_shard * place.lane_size});
    if (place.lane_size > 1) {
        plan.push_back({"lane receive buffers", largest_shard * (place.lane_size - 1)});
    }
    plan.push_back({"gradient slots", kFloat * gradient_slots.numel() * place.node_size, shared});
    const bool resident = kind == StoreKind::kResident;
    const auto parameter_counters = static_cast<std::int64_t>(
        resident ? 2 * layout.units.size() : 3 * parameter_slots.slots.size());
    plan.push_back({"arena counters",
                    counter_bytes(parameter_counters, gradient_slots.slots.size(), place), shared});
    if (resident) {
        plan.push_back({"unsharded parameters (master shards are slices)", flat, shared});
    } else {
        plan.push_back({"parameter slots", kFloat * parameter_slots.numel(), shared});
        plan.push_back({"fp32 master shards", flat / ranks});
    }
    return plan;
}

Traffic plan_traffic(StoreKind kind, const Layout& layout, const Schedule& schedule,
                     const Place& place, std::int64_t micro_batches, std::int64_t evaluations) {
    const std::int64_t ranks = place.shards();
    Traffic traffic;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        const auto unit = static_cast<std::int64_t>(i);
        const std::int64_t bytes = kFloat * layout.units[i].padded();
        const auto visits = [unit](const std::vector<Visit>& pass) {
            return std::ranges::count(pass, unit, &Visit::unit);
        };
        const std::int64_t forwards = visits(schedule.forward) * (micro_batches + evaluations);
        const std::int64_t backwards = visits(schedule.backward) * micro_batches;
        const std::int64_t gathers = forwards + backwards;
        const std::int64_t reductions = layout.units[i].trainable() ? backwards : 0;
        if (kind == StoreKind::kPrivate) {
            // Each rank owns a block of the sum; the last ones are shorter where W does not divide.
            const std::int64_t elements = layout.units[i].padded();
            const std::int64_t block = (elements + ranks - 1) / ranks;
            const std::int64_t own =
                std::clamp<std::int64_t>(elements - place.shard() * block, 0, block);
            traffic.reduced += reductions * (2 * bytes * (ranks - 1) / ranks);
            traffic.lane_received += reductions * kFloat * (own * (ranks - 1) + elements - own);
            continue;
        }
        const std::int64_t shard = bytes / ranks;
        const std::int64_t lane = (place.lane_size - 1) * shard;
        traffic.gathered += gathers * (bytes - shard);
        traffic.reduced += reductions * (bytes - shard);
        traffic.node_local_read += reductions * bytes / place.node_size * (place.node_size - 1);
        traffic.lane_received += reductions * lane;
        if (ranks == 1) traffic.copied += reductions * shard;
        if (kind == StoreKind::kSlotted) {
            traffic.lane_received += gathers * lane;
            traffic.copied += gathers * shard;
        }
    }
    return traffic;
}

}  // namespace fullshard::shard
