#include "shard/grad_reducer.h"

#include "base/error.h"
#include "kernels/ordered_sum.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::shard {

namespace {

std::int64_t max_shard(const Layout& layout) {
    return std::ranges::max(layout.units, {}, &Unit::shard_numel).shard_numel();
}

}  // namespace

std::int64_t GradReducer::arena_numel(const SlotPlan& slots, const Place& place) {
    return slots.numel() * place.node_size;
}

std::int64_t GradReducer::channels(const SlotPlan& slots) {
    return 2 * static_cast<std::int64_t>(slots.slots.size());
}

GradReducer::GradReducer(const Layout& layout, const SlotPlan& slots, const Place& place,
                         std::int64_t micro_batches, comm::NodeArena& arena,
                         std::span<float> memory, std::int64_t first_channel,
                         comm::Communicator* lane, Disturbance& disturbance)
    : layout_(layout),
      slots_(slots),
      place_(place),
      arena_(arena),
      memory_(memory),
      first_channel_(first_channel),
      lane_(lane),
      disturbance_(disturbance),
      uses_(slots.slots.size()),
      sources_(static_cast<std::size_t>(place.node_size)) {
    const std::int64_t levels = TreeAccumulator::levels_for(micro_batches);
    accumulator_memory_.resize(static_cast<std::size_t>(levels * layout.padded() / layout.shards));
    std::span<float> rest = accumulator_memory_;
    for (const Unit& unit : layout.units) {
        sinks_.emplace_back(unit);
        const auto numel = static_cast<std::size_t>(levels * unit.shard_numel());
        accumulators_.emplace_back(rest.first(numel), levels);
        rest = rest.subspan(numel);
    }
    if (place.lane_size > 1) {
        const std::int64_t shard = max_shard(layout);
        if (place.node_size > 1)
            lane_staging_.resize(static_cast<std::size_t>(shard * place.lane_size));
        lane_scratch_.resize(static_cast<std::size_t>(shard * (place.lane_size - 1)));
    }
    pending_.reserve(slots.slots.size() + 1);
}

std::span<float> GradReducer::slot(std::int64_t node_rank, std::int64_t unit) const {
    const auto& place = slots_.slot(static_cast<std::size_t>(unit));
    return memory_.subspan(static_cast<std::size_t>(node_rank * slots_.numel() + place.offset),
                           static_cast<std::size_t>(place.numel));
}

bool GradReducer::pending_in(std::size_t slot) const {
    return std::ranges::any_of(pending_, [&](std::int64_t unit) {
        return slots_.slot_of_unit[static_cast<std::size_t>(unit)] == slot;
    });
}

void GradReducer::begin(std::int64_t unit) {
    const auto index = static_cast<std::size_t>(unit);
    const std::size_t s = slots_.slot_of_unit[index];
    while (pending_in(s)) start_oldest();
    // Without node sharing the exchange reads the slot itself, so it must be over.
    if (place_.node_size == 1 && exchange_.handle.in_flight() &&
        slots_.slot_of_unit[static_cast<std::size_t>(exchange_.unit)] == s) {
        finish_lane_exchange();
    }
    arena_.wait(consumed_channel(s), uses_[s], [this, unit] {
        return fmt::format("the ranks of the node to have read the gradient slot of {}",
                           layout_.units[static_cast<std::size_t>(unit)].name());
    });
    const std::span<float> own = slot(place_.node_rank, unit);
    disturbance_.poison(own);
    sinks_[index].begin(own);
}

void GradReducer::reduce(std::int64_t unit) {
    const auto index = static_cast<std::size_t>(unit);
    const std::size_t s = slots_.slot_of_unit[index];
    sinks_[index].seal();
    disturbance_.delay();
    ++uses_[s];
    arena_.post(ready_channel(s));
    pending_.push_back(unit);
    traffic_.reduced += layout_.units[index].padded() * 4 * (place_.shards() - 1) / place_.shards();
    // Older reductions that can go on without waiting do so now.
    while (pending_.size() > 1 && exchange_.handle.ready()) {
        const std::size_t oldest = slots_.slot_of_unit[static_cast<std::size_t>(pending_.front())];
        if (!arena_.reached(ready_channel(oldest), uses_[oldest])) break;
        start_oldest();
    }
}

void GradReducer::start_oldest() {
    const std::int64_t unit = pending_.front();
    pending_.erase(pending_.begin());
    const std::size_t s = slots_.slot_of_unit[static_cast<std::size_t>(unit)];
    arena_.wait(ready_channel(s), uses_[s], [this, unit] {
        return fmt::format("the gradients of {} from the ranks of the node",
                           layout_.units[static_cast<std::size_t>(unit)].name());
    });
    disturbance_.delay();
    sum_over_node(unit);
}

void GradReducer::sum_over_node(std::int64_t unit) {
    const auto index = static_cast<std::size_t>(unit);
    const std::size_t s = slots_.slot_of_unit[index];
    const std::int64_t shard = layout_.units[index].shard_numel();
    finish_lane_exchange();  // frees the staging memory
    TreeAccumulator& accumulator = accumulators_[index];

    if (place_.node_size == 1 && place_.lane_size > 1) {
        exchange(unit, adjacent_blocks(slot(0, unit), place_.lane_size));
        return;
    }
    // Shard (node n, this local rank), for each node n, over the slots of all local ranks.
    for (std::int64_t n = 0; n < place_.lane_size; ++n) {
        const std::int64_t first = (n * place_.node_size + place_.node_rank) * shard;
        for (std::int64_t r = 0; r < place_.node_size; ++r) {
            sources_[static_cast<std::size_t>(r)] = slot(r, unit).data() + first;
        }
        const std::span<float> out = place_.lane_size == 1
                                         ? accumulator.target()
                                         : std::span(lane_staging_)
                                               .subspan(static_cast<std::size_t>(n * shard),
                                                        static_cast<std::size_t>(shard));
        kernels::tree_sum(out, sources_);
        traffic_.node_local_read += (place_.node_size - 1) * shard * 4;
    }
    // The sum over one rank is a copy.
    if (place_.shards() == 1) traffic_.copied += shard * 4;
    arena_.post(consumed_channel(s));
    if (place_.lane_size == 1) {
        accumulator.commit();
    } else {
        const auto staged = static_cast<std::size_t>(shard * place_.lane_size);
        exchange(unit, adjacent_blocks(std::span(lane_staging_).first(staged), place_.lane_size));
    }
}

void GradReducer::exchange(std::int64_t unit, const RankBlocks& blocks) {
    exchange_.unit = unit;
    exchange_.handle =
        lane_->reduce_scatter(blocks, accumulators_[static_cast<std::size_t>(unit)].target(),
                              std::span(lane_scratch_), kReduceChannel);
}

void GradReducer::finish_lane_exchange() {
    if (!exchange_.handle.in_flight()) return;
    exchange_.handle.wait();
    const auto index = static_cast<std::size_t>(exchange_.unit);
    if (place_.node_size == 1) arena_.post(consumed_channel(slots_.slot_of_unit[index]));
    accumulators_[index].commit();
}

void GradReducer::finish() {
    while (!pending_.empty()) start_oldest();
    finish_lane_exchange();
    for (std::size_t i = 0; i < accumulators_.size(); ++i) {
        if (!layout_.units[i].trainable()) continue;
        accumulators_[i].finish();
        accumulators_[i].reset();
    }
}

std::span<const float> GradReducer::gradient(std::int64_t unit) const {
    return accumulators_[static_cast<std::size_t>(unit)].result();
}

std::vector<Allocation> GradReducer::allocations() const {
    const auto bytes = [](const std::vector<float>& memory) {
        return static_cast<std::int64_t>(memory.size()) * 4;
    };
    std::vector<Allocation> list{
        {"gradient shards (tree over micro-batches)", bytes(accumulator_memory_)}};
    if (!lane_staging_.empty()) list.push_back({"lane staging", bytes(lane_staging_)});
    if (!lane_scratch_.empty()) list.push_back({"lane receive buffers", bytes(lane_scratch_)});
    return list;
}

}  // namespace fullshard::shard
