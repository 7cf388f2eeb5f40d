#include "shard/plan.h"

#include "shard/tree_accumulator.h"

#include <algorithm>

namespace fullshard::shard {

namespace {

constexpr std::int64_t kFloat = 4;

/// Over trainable units: elements of their flat parameters, and of the largest.
struct TrainableSize {
    std::int64_t all = 0;
    std::int64_t largest = 0;
};
TrainableSize trainable_size(const Layout& layout) {
    TrainableSize size;
    for (const Unit& unit : layout.units) {
        if (!unit.trainable()) continue;
        size.all += unit.padded();
        size.largest = std::max(size.largest, unit.padded());
    }
    return size;
}

/// Two counters a gradient slot; two a resident unit or three a parameter slot. 16 counters of 8
/// bytes share two cache lines.
std::int64_t counter_bytes(std::int64_t parameter_counters, std::size_t gradient_slots,
                           const Place& place) {
    const std::int64_t counters =
        parameter_counters + 2 * static_cast<std::int64_t>(gradient_slots);
    return (counters + 15) / 16 * 128 * place.node_size;
}

/// Items without bytes are not listed.
class MemoryPlan {
  public:
    void add(const char* purpose, std::int64_t bytes) {
        if (bytes > 0) list_.push_back({purpose, bytes});
    }
    void add_always(const char* purpose, std::int64_t bytes, bool shared) {
        list_.push_back({purpose, bytes, shared});
    }
    std::vector<Allocation> take() { return std::move(list_); }

  private:
    std::vector<Allocation> list_;
};

std::vector<Allocation> plan_private(const Layout& layout, const Schedule& schedule,
                                     const Place& place, const StoreOptions& options) {
    const TrainableSize trainable = trainable_size(layout);
    const std::int64_t ranks = place.replicas;
    const std::int64_t block = (trainable.largest + ranks - 1) / ranks;
    const std::int64_t levels =
        TreeAccumulator::levels_for(reductions_a_step(options), options.order);
    MemoryPlan plan;
    plan.add("private fp32 parameters", kFloat * layout.padded());
    if (options.compute != DType::kFloat32) {
        plan.add("parameters in the compute type", layout.padded() * size_of(options.compute));
    }
    if (options.gradient() != DType::kFloat32) {
        plan.add("gradient slots", plan_gradient_slots(layout, schedule, options).numel() *
                                       size_of(options.gradient()));
    }
    plan.add("gradients (sums over micro-batches)", kFloat * levels * trainable.all);
    plan.add("all-reduce receive buffers", size_of(options.reduce) * block * (ranks - 1));
    if (options.reduce != DType::kFloat32) {
        plan.add("gradient in the reduce type", trainable.largest * size_of(options.reduce));
    }
    return plan.take();
}

std::vector<Allocation> plan_device(const Layout& layout, const Schedule& schedule,
                                    const Place& place, const StoreOptions& options) {
    const std::int64_t ranks = place.shards();
    const bool rounds = options.reduce != DType::kFloat32;
    MemoryPlan plan;
    plan.add("gradient shards (sums over micro-batches)",
             kFloat * trainable_size(layout).all / ranks);
    if (rounds && place.replicas > 1) {
        plan.add("gradient shard in the reduce type",
                 layout.largest_trainable_shard() * size_of(options.reduce));
    }
    plan.add("gradient slots", plan_gradient_slots(layout, schedule, options).numel() *
                                   size_of(device_gradient_type(options)));
    plan.add("parameter slots", plan_parameter_slots(layout, schedule, options, place).numel() *
                                    size_of(options.compute));
    plan.add("fp32 master shards", kFloat * layout.padded() / ranks);
    if (options.compute != DType::kFloat32) {
        plan.add("shards in the compute type", layout.padded() / ranks * size_of(options.compute));
    }
    return plan.take();
}

void add_reducer(MemoryPlan& plan, const Layout& layout, const Place& place,
                 const StoreOptions& options) {
    const TrainableSize trainable = trainable_size(layout);
    const std::int64_t levels =
        TreeAccumulator::levels_for(reductions_a_step(options), options.order);
    const std::int64_t shard = trainable.largest / place.shards();
    const bool from_slots = lanes_read_slots(options, place);
    plan.add("gradient shards (sums over micro-batches)",
             kFloat * levels * trainable.all / place.shards());
    if (place.lane_size > 1) {
        const DType sent = from_slots ? options.gradient() : options.reduce;
        if (!from_slots) {
            plan.add("lane staging", shard * place.lane_size * size_of(options.reduce));
        }
        plan.add("lane receive buffers", shard * (place.lane_size - 1) * size_of(sent));
    }
    const std::int64_t block = (shard + place.replicas - 1) / place.replicas;
    plan.add("replica receive buffers", (place.replicas - 1) * block * size_of(options.reduce));
    if (options.reduce != DType::kFloat32) {
        plan.add("gradient shard in the reduce type", shard * size_of(options.reduce));
    }
}

/// Unshards of a unit, of the two kinds that differ in bytes.
struct Gathers {
    std::int64_t over_all = 0;
    std::int64_t over_smaller_group = 0;
};

std::int64_t uses_in(const std::vector<Visit>& pass, std::int64_t unit) {
    return std::ranges::count_if(pass, [unit](const Visit& visit) {
        return std::ranges::find(visit.uses, unit, &UnitUse::unit) != visit.uses.end();
    });
}

Gathers count_gathers(const Schedule& schedule, const Unit& unit, std::int64_t index,
                      const StoreOptions& options, const Work& work) {
    // Visits of one pass share an unshard, and so do the two passes where the unit is kept.
    const auto used = [&](const std::vector<Visit>& pass) -> std::int64_t {
        return uses_in(pass, index) > 0 ? 1 : 0;
    };
    const bool kept = std::ranges::any_of(schedule.forward.back().uses, [&](const UnitUse& use) {
        return use.unit == index && use.after == Reshard::kKeep;
    });
    const std::int64_t a_micro_batch =
        used(schedule.forward) + (kept ? 0 : used(schedule.backward));
    const std::int64_t passes = work.steps * options.micro_batches * a_micro_batch +
                                work.evaluations * used(schedule.evaluation);
    const std::int64_t versions = std::min(passes, unit.trainable() ? work.versions : 1);
    switch (options.residency) {
        case Residency::kWhileUsed:
            return {passes, 0};
        case Residency::kSmallerGroup:
            return {versions, passes - versions};
        case Residency::kUntilUpdate:
            break;
    }
    return {versions, 0};
}

/// What an all-reduce over equal blocks, the last ones shorter, brings to this rank.
std::int64_t all_reduce_receives(std::int64_t elements, std::int64_t rank, std::int64_t ranks) {
    const std::int64_t block = (elements + ranks - 1) / ranks;
    const std::int64_t own = std::clamp<std::int64_t>(elements - rank * block, 0, block);
    return own * (ranks - 1) + elements - own;
}

}  // namespace

std::vector<Allocation> plan_memory(StoreKind kind, const Layout& layout, const Schedule& schedule,
                                    const Place& place, const StoreOptions& options) {
    if (kind == StoreKind::kPrivate) return plan_private(layout, schedule, place, options);
    if (kind == StoreKind::kDevice) return plan_device(layout, schedule, place, options);
    const bool shared = place.node_size > 1;
    const std::int64_t ranks = place.shards();
    const SlotPlan gradient_slots = plan_gradient_slots(layout, schedule, options);
    const SlotPlan parameter_slots = plan_parameter_slots(layout, schedule, options, place);
    const bool without_slots = needs_no_gradient_slots(options, place);
    const bool resident = kind == StoreKind::kResident;
    const std::int64_t compute = size_of(options.compute);
    MemoryPlan plan;
    add_reducer(plan, layout, place, options);
    plan.add_always(
        "gradient slots",
        without_slots ? 0 : gradient_slots.numel() * place.node_size * size_of(options.gradient()),
        shared);
    const auto counters = static_cast<std::int64_t>(resident ? 2 * layout.units.size()
                                                             : 3 * parameter_slots.slots.size());
    plan.add_always("arena counters", counter_bytes(counters, gradient_slots.slots.size(), place),
                    shared);
    if (resident && options.compute == DType::kFloat32) {
        plan.add_always("unsharded parameters (master shards are slices)",
                        compute * layout.padded(), shared);
        return plan.take();
    }
    if (resident) {
        plan.add_always("unsharded parameters", compute * layout.padded(), shared);
    } else {
        plan.add_always("parameter slots", compute * parameter_slots.numel(), shared);
    }
    plan.add("fp32 master shards", kFloat * layout.padded() / ranks);
    if (!resident && options.residency == Residency::kSmallerGroup &&
        !keeps_on_node(options, place)) {
        plan.add("parts of the smaller group", compute * layout.padded() / options.regather_ranks);
    }
    return plan.take();
}

Traffic plan_traffic(StoreKind kind, const Layout& layout, const Schedule& schedule,
                     const Place& place, const StoreOptions& options, const Work& work) {
    const std::int64_t ranks = place.shards();
    const std::int64_t compute = size_of(options.compute), reduce = size_of(options.reduce);
    const std::int64_t gradient = size_of(options.gradient());
    const std::int64_t reductions = work.steps * reductions_a_step(options);
    const std::int64_t all_reduces = options.order == SumOrder::kTree ? reductions : work.steps;
    const bool from_slots = lanes_read_slots(options, place);
    Traffic traffic;
    for (std::size_t i = 0; i < layout.units.size(); ++i) {
        const Unit& unit = layout.units[i];
        const std::int64_t padded = unit.padded(), shard = unit.shard_numel();
        if (unit.trainable() && place.replicas > 1) {
            const std::int64_t block = kind == StoreKind::kPrivate ? padded : shard;
            traffic.reduced +=
                all_reduces * (2 * block * reduce * (place.replicas - 1) / place.replicas);
            traffic.lane_received +=
                all_reduces * reduce * all_reduce_receives(block, place.replica, place.replicas);
        }
        if (kind == StoreKind::kPrivate) continue;

        const Gathers gathers =
            count_gathers(schedule, unit, static_cast<std::int64_t>(i), options, work);
        traffic.gathered += gathers.over_all * (compute * padded * (ranks - 1) / ranks);
        if (gathers.over_smaller_group > 0) {
            const std::int64_t k = options.regather_ranks;
            traffic.gathered += gathers.over_smaller_group * (compute * padded * (k - 1) / k);
        }
        if (kind == StoreKind::kDevice) {
            traffic.lane_received += gathers.over_all * compute * (ranks - 1) * shard;
            traffic.copied += gathers.over_all * compute * shard;
        }
        if (kind == StoreKind::kSlotted) {
            traffic.lane_received += gathers.over_all * compute * (place.lane_size - 1) * shard;
            traffic.copied += gathers.over_all * compute * shard;
            if (options.residency == Residency::kSmallerGroup && !keeps_on_node(options, place)) {
                const std::int64_t part = compute * padded / options.regather_ranks;
                const std::int64_t nodes = options.regather_ranks / place.node_size;
                traffic.lane_received += gathers.over_smaller_group * (nodes - 1) * part;
                traffic.copied += (gathers.over_smaller_group + gathers.over_all) * part;
            }
        }
        if (!unit.trainable()) continue;
        traffic.reduced += reductions * (reduce * padded * (ranks - 1) / ranks);
        if (kind == StoreKind::kDevice) {
            traffic.lane_received +=
                reductions * (ranks - 1) * shard * size_of(device_gradient_type(options));
            continue;
        }
        traffic.node_local_read +=
            reductions * gradient * (padded / place.node_size) * (place.node_size - 1);
        traffic.lane_received +=
            reductions * (place.lane_size - 1) * shard * (from_slots ? gradient : reduce);
        if (ranks == 1 && options.gradient() != DType::kFloat32) {
            traffic.copied += reductions * gradient * shard;
        }
    }
    return traffic;
}

}  // namespace fullshard::shard
