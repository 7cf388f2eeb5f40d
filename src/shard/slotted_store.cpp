#include "shard/slotted_store.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::shard {

SlottedStore::SlottedStore(const Layout& layout, const comm::NodeLanes& lanes,
                           const StoreOptions& options)
    : ArenaStore(layout, lanes, options, make_slot_plan(layout, options.parameter_slots).numel(),
                 3 * static_cast<std::int64_t>(
                         make_slot_plan(layout, options.parameter_slots).slots.size())),
      slots_(make_slot_plan(layout, options.parameter_slots)),
      states_(slots_.slots.size()) {
    std::size_t offset = 0;
    for (const Unit& each : layout.units) {
        master_offsets_.push_back(offset);
        offset += static_cast<std::size_t>(each.shard_numel());
    }
    master_memory_.resize(offset);
}

std::span<float> SlottedStore::unsharded(std::int64_t index) {
    const auto& slot = slots_.slot(static_cast<std::size_t>(index));
    return parameter_memory().subspan(static_cast<std::size_t>(slot.offset),
                                      static_cast<std::size_t>(slot.numel));
}

std::span<float> SlottedStore::master(std::int64_t index) {
    return std::span(master_memory_)
        .subspan(master_offsets_[static_cast<std::size_t>(index)],
                 static_cast<std::size_t>(unit(index).shard_numel()));
}

RankBlocks SlottedStore::lane_blocks(std::int64_t index) {
    const std::int64_t shard = unit(index).shard_numel();
    auto* first = unsharded(index).data() + place().node_rank * shard;
    return {reinterpret_cast<std::byte*>(first), shard, place().node_size * shard};
}

void SlottedStore::start_fill(std::int64_t index) {
    SlotState& state = state_of(index);
    ensure(!state.leased, "a slot is refilled only after its unit was released");
    disturbance().delay();
    std::ranges::copy(master(index), shard_of(unsharded(index), index).begin());
    state.filling = index;
    if (lane() != nullptr) {
        state.gather = lane()->all_gather(lane_blocks(index), gather_channel(index));
    }
    parameter_traffic().copied += unit(index).shard_numel() * 4;
    count_gather(index);
}

void SlottedStore::prefetch(std::int64_t index) {
    SlotState& state = state_of(index);
    if (state.filling != kEmpty) return;
    // A slower rank of the node may still read the slot: then the fill starts when it is needed.
    if (arena().reached(released_channel(index), state.fills)) start_fill(index);
}

void SlottedStore::acquire(std::int64_t index) {
    SlotState& state = state_of(index);
    ensure(!state.leased, "a unit is leased once at a time");
    if (state.filling != index) {
        ensure(state.filling == kEmpty,
               "a prefetched unit is used before its slot is needed again");
        arena().wait(released_channel(index), state.fills, [this, index] {
            return "the ranks of the node to release the slot for " + unit(index).name();
        });
        start_fill(index);
    }
    state.gather.wait();
    ++state.fills;
    arena().post(filled_channel(index));
    arena().wait(filled_channel(index), state.fills, [this, index] {
        return "the shards of " + unit(index).name() + " from the ranks of the node";
    });
    state.leased = true;
}

void SlottedStore::release(std::int64_t index) {
    SlotState& state = state_of(index);
    state.filling = kEmpty;
    state.leased = false;
    if (disturbance().poisons()) {
        arena().post(read_channel(index));
        arena().wait(read_channel(index), state.fills,
                     [this, index] { return "the last readers of " + unit(index).name(); });
        poison_own_blocks(index);
    }
    arena().post(released_channel(index));
}

void SlottedStore::poison_own_blocks(std::int64_t index) {
    const RankBlocks blocks = lane_blocks(index);
    for (std::int64_t node = 0; node < place().lane_size; ++node) {
        disturbance().poison({reinterpret_cast<float*>(blocks.block(node)),
                              static_cast<std::size_t>(blocks.block_count)});
    }
}

void SlottedStore::publish(std::int64_t index) {
    ensure(state_of(index).filling != index,
           "parameters are updated while no fill of the unit is in flight");
}

std::vector<Allocation> SlottedStore::allocations() const {
    auto list = ArenaStore::allocations();
    list.push_back({"parameter slots", 4 * slots_.numel(), place().node_size > 1});
    list.push_back({"fp32 master shards", 4 * static_cast<std::int64_t>(master_memory_.size())});
    return list;
}

std::string SlottedStore::describe() const {
    const std::string sharing =
        place().node_size == 1
            ? std::string("each rank with slots of its own")
            : fmt::format("slots shared by the {} ranks of a node", place().node_size);
    return fmt::format("slotted: {} slots for {} units, {}, lanes of {}", slots_.slots.size(),
                       layout().units.size(), sharing, place().lane_size);
}

}  // namespace fullshard::shard
