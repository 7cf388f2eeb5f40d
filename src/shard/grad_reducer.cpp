#include "shard/grad_reducer.h"

#include "base/error.h"
#include "kernels/cast.h"
#include "kernels/ordered_sum.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::shard {

std::function<std::string(int channel)> channel_names(const Layout& layout) {
    return [&layout](int channel) -> std::string {
        if (channel == kReduceChannel) return "gradient reduction";
        return "gather of " +
               layout.units.at(static_cast<std::size_t>(channel - gather_channel(0))).name();
    };
}

std::int64_t GradReducer::arena_numel(const SlotPlan& slots, const Place& place,
                                      const StoreOptions& options) {
    return needs_no_gradient_slots(options, place) ? 0 : slots.numel() * place.node_size;
}

std::int64_t GradReducer::channels(const SlotPlan& slots) {
    return 2 * static_cast<std::int64_t>(slots.slots.size());
}

GradReducer::GradReducer(const Layout& layout, const SlotPlan& slots, const Place& place,
                         const StoreOptions& options, comm::NodeArena& arena,
                         const TypedSpan& memory, std::int64_t first_channel,
                         const ReductionPeers& peers, Disturbance& disturbance)
    : layout_(layout),
      slots_(slots),
      place_(place),
      options_(options),
      arena_(arena),
      memory_(memory),
      first_channel_(first_channel),
      peers_(peers),
      disturbance_(disturbance),
      without_slots_(needs_no_gradient_slots(options, place)),
      lanes_read_slots_(lanes_read_slots(options, place)),
      contributions_(reductions_a_step(options)),
      begun_(layout.units.size()),
      added_(layout.units.size()),
      uses_(slots.slots.size()),
      sources_(static_cast<std::size_t>(place.node_size)) {
    const std::int64_t levels = TreeAccumulator::levels_for(contributions_, options.order);
    const auto length = [](const Unit& unit) { return unit.trainable() ? unit.shard_numel() : 0; };
    std::int64_t total = 0;
    for (const Unit& each : layout.units) total += levels * length(each);
    accumulator_memory_ = AlignedBuffer(total);
    std::span<float> rest = accumulator_memory_.span();
    for (const Unit& each : layout.units) {
        sinks_.emplace_back(each);
        const auto numel = static_cast<std::size_t>(levels * length(each));
        accumulators_.emplace_back(rest.first(numel), levels, options.order);
        rest = rest.subspan(numel);
    }
    const std::int64_t shard = layout.largest_trainable_shard();
    if (place.lane_size > 1) {
        if (!lanes_read_slots_) {
            lane_staging_ = AlignedBuffer(shard * place.lane_size, options.reduce);
        }
        lane_scratch_ = AlignedBuffer(shard * (place.lane_size - 1),
                                      lanes_read_slots_ ? options.gradient() : options.reduce);
    }
    if (place.replicas > 1) {
        const std::int64_t block = (shard + place.replicas - 1) / place.replicas;
        replica_scratch_ = AlignedBuffer((place.replicas - 1) * block, options.reduce);
    }
    if (options.reduce != DType::kFloat32) rounded_ = AlignedBuffer(shard, options.reduce);
    pending_.reserve(slots.slots.size() + 1);
}

TypedSpan GradReducer::slot(std::int64_t node_rank, std::int64_t unit) const {
    const auto& place = slots_.slot(static_cast<std::size_t>(unit));
    return memory_.part(node_rank * slots_.numel() + place.offset, place.numel);
}

bool GradReducer::pending_in(std::size_t slot) const {
    return std::ranges::any_of(pending_,
                               [&](std::int64_t unit) { return slot_index(unit) == slot; });
}

void GradReducer::begin(std::int64_t index) {
    SlotGradSink& sink = sinks_[static_cast<std::size_t>(index)];
    const bool first = begun_[static_cast<std::size_t>(index)]++ == 0;
    if (options_.accumulation == Accumulation::kUnsharded && !first) {
        sink.resume();
        return;
    }
    TypedSpan memory;
    if (without_slots_) {
        if (flight_.stage != Flight::Stage::kNone && flight_.unit == index) finish_flight();
        memory = accumulator(index).target();
    } else {
        memory = begin_slot(index);
    }
    disturbance_.poison(memory);
    sink.begin(memory);
}

/// Waits until the unit's slot is free on all ranks of the node.
TypedSpan GradReducer::begin_slot(std::int64_t index) {
    const std::size_t s = slot_index(index);
    while (pending_in(s)) start_oldest();
    if (lanes_read_slots_ && flight_.stage == Flight::Stage::kLane &&
        slot_index(flight_.unit) == s) {
        finish_flight();
    }
    arena_.wait(consumed_channel(s), uses_[s], [this, index] {
        return fmt::format("the ranks of the node to have read the gradient slot of {}",
                           unit(index).name());
    });
    return slot(place_.node_rank, index);
}

void GradReducer::reduce(std::int64_t index) {
    SlotGradSink& sink = sinks_[static_cast<std::size_t>(index)];
    if (options_.accumulation == Accumulation::kUnsharded &&
        begun_[static_cast<std::size_t>(index)] < options_.micro_batches) {
        sink.pause();
        return;
    }
    sink.seal(zero);
    disturbance_.delay();
    traffic_.reduced +=
        unit(index).padded() * size_of(options_.reduce) * (place_.shards() - 1) / place_.shards();
    if (without_slots_) {
        finish_flight();
        const TypedSpan sum(accumulator(index).target());
        if (options_.reduce != DType::kFloat32) kernels::convert(sum, group_sum(index));
        add_to_step(index);
        return;
    }
    const std::size_t s = slot_index(index);
    ++uses_[s];
    arena_.post(ready_channel(s));
    pending_.push_back(index);
    advance();
}

/// Waits only where every rank must come: a rank that waited here, because it happened to be ready,
/// could wait for one that waits for it elsewhere.
bool GradReducer::advance() {
    for (;;) {
        if (flight_.stage != Flight::Stage::kNone) {
            if (!flight_.handle.ready()) return true;
            advance_flight();
            continue;
        }
        if (pending_.empty()) return false;
        const std::size_t oldest = slot_index(pending_.front());
        if (!arena_.reached(ready_channel(oldest), uses_[oldest])) return true;
        start_oldest();
    }
}

void GradReducer::start_oldest() {
    const std::int64_t index = pending_.front();
    pending_.erase(pending_.begin());
    const std::size_t s = slot_index(index);
    arena_.wait(ready_channel(s), uses_[s], [this, index] {
        return fmt::format("the gradients of {} from the ranks of the node", unit(index).name());
    });
    finish_flight();
    sum_over_node(index);
}

TypedSpan GradReducer::group_sum(std::int64_t index) {
    if (options_.reduce == DType::kFloat32) return accumulator(index).target();
    return rounded_.typed().part(0, unit(index).shard_numel());
}

void GradReducer::sum_over_node(std::int64_t index) {
    const std::size_t s = slot_index(index);
    const std::int64_t shard = unit(index).shard_numel();
    const DType slot_type = options_.gradient();
    const auto exchange = [&](const RankBlocks& blocks) {
        flight_.stage = Flight::Stage::kLane;
        flight_.unit = index;
        flight_.handle = peers_.lane->reduce_scatter(blocks, group_sum(index),
                                                     lane_scratch_.typed(), kReduceChannel);
    };
    if (place_.lane_size > 1 && lanes_read_slots_) {
        exchange(adjacent_blocks(slot(0, index), place_.lane_size));
        return;
    }
    // Shard (node n, this local rank), for each node n, over the slots of all local ranks.
    for (std::int64_t n = 0; n < place_.lane_size; ++n) {
        const std::int64_t first = (n * place_.node_size + place_.node_rank) * shard;
        for (std::int64_t r = 0; r < place_.node_size; ++r) {
            sources_[static_cast<std::size_t>(r)] =
                slot(r, index).data + first * size_of(slot_type);
        }
        const TypedSpan out =
            place_.lane_size == 1 ? group_sum(index) : lane_staging_.typed().part(n * shard, shard);
        kernels::tree_sum(out, sources_, slot_type);
        traffic_.node_local_read += (place_.node_size - 1) * shard * size_of(slot_type);
    }
    // The sum over one rank is a copy.
    if (place_.shards() == 1) traffic_.copied += shard * size_of(slot_type);
    arena_.post(consumed_channel(s));
    if (place_.lane_size == 1) {
        add_to_step(index);
    } else {
        exchange(adjacent_blocks(lane_staging_.typed().part(0, shard * place_.lane_size),
                                 place_.lane_size));
    }
}

/// The sum over the shard group is known.
void GradReducer::add_to_step(std::int64_t index) {
    if (peers_.replicas != nullptr && options_.order == SumOrder::kTree) {
        all_reduce_over_replicas(index, group_sum(index), Flight::Stage::kReplicas);
    } else {
        commit(index);
    }
}

void GradReducer::all_reduce_over_replicas(std::int64_t index, const TypedSpan& values,
                                           Flight::Stage stage) {
    traffic_.reduced += 2 * values.bytes() * (place_.replicas - 1) / place_.replicas;
    flight_.stage = stage;
    flight_.unit = index;
    flight_.handle = peers_.replicas->all_reduce(values, replica_scratch_.typed(), kReduceChannel);
}

void GradReducer::commit(std::int64_t index) {
    TreeAccumulator& sum = accumulator(index);
    if (options_.reduce != DType::kFloat32) kernels::widen(group_sum(index), sum.target());
    sum.commit();
    if (++added_[static_cast<std::size_t>(index)] < contributions_) return;
    sum.finish();
    if (peers_.replicas == nullptr || options_.order == SumOrder::kTree) return;
    TypedSpan values(sum.result());
    if (options_.reduce != DType::kFloat32) {
        const TypedSpan rounded = rounded_.typed().part(0, values.count);
        kernels::convert(values, rounded);
        values = rounded;
    }
    all_reduce_over_replicas(index, values, Flight::Stage::kReplicasAtEnd);
}

/// The flight's messages are complete or can be waited for: what follows.
void GradReducer::advance_flight() {
    flight_.handle.wait();
    const std::int64_t index = flight_.unit;
    switch (std::exchange(flight_.stage, Flight::Stage::kNone)) {
        case Flight::Stage::kLane:
            if (lanes_read_slots_) arena_.post(consumed_channel(slot_index(index)));
            add_to_step(index);
            return;
        case Flight::Stage::kReplicas:
            commit(index);
            return;
        case Flight::Stage::kReplicasAtEnd:
            if (options_.reduce != DType::kFloat32) {
                kernels::widen(group_sum(index), accumulator(index).result());
            }
            return;
        case Flight::Stage::kNone:
            return;
    }
}

void GradReducer::finish_flight() {
    while (flight_.stage != Flight::Stage::kNone) advance_flight();
}

void GradReducer::finish() {
    while (!pending_.empty()) start_oldest();
    finish_flight();
    for (std::size_t i = 0; i < accumulators_.size(); ++i) {
        if (!layout_.units[i].trainable()) continue;
        ensure(added_[i] == contributions_, "every micro-batch of a step is reduced");
        accumulators_[i].reset();
        begun_[i] = 0;
        added_[i] = 0;
    }
}

TypedSpan GradReducer::gradient(std::int64_t unit) const {
    return accumulators_[static_cast<std::size_t>(unit)].result();
}

std::vector<Allocation> GradReducer::allocations() const {
    std::vector<Allocation> list;
    const auto add = [&](const char* purpose, const AlignedBuffer& memory) {
        if (!memory.empty()) list.push_back({purpose, memory.bytes()});
    };
    add("gradient shards (sums over micro-batches)", accumulator_memory_);
    add("lane staging", lane_staging_);
    add("lane receive buffers", lane_scratch_);
    add("replica receive buffers", replica_scratch_);
    add("gradient shard in the reduce type", rounded_);
    return list;
}

}  // namespace fullshard::shard
