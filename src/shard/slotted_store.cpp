#include "shard/slotted_store.h"

#include "base/error.h"
#include "comm/mpi_communicator.h"
#include "kernels/cast.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fullshard::shard {

SlottedStore::SlottedStore(const Layout& layout, const Schedule& schedule, const comm::Mesh& mesh,
                           const StoreOptions& options)
    : SlottedStore(layout, schedule, mesh, options,
                   plan_parameter_slots(layout, schedule, options, place_of(mesh))) {}

SlottedStore::SlottedStore(const Layout& layout, const Schedule& schedule, const comm::Mesh& mesh,
                           const StoreOptions& options, SlotPlan slots)
    : ArenaStore(layout, schedule, mesh, options, slots.numel(),
                 3 * static_cast<std::int64_t>(slots.slots.size())),
      slots_(std::move(slots)),
      states_(slots_.slots.size()),
      masters_(layout) {
    regather_.held.resize(layout.units.size());
    if (options.residency != Residency::kSmallerGroup || keeps_on_node(options, place())) return;
    const std::int64_t ranks = options.regather_ranks;
    ensure(ranks % place().node_size == 0 && place().shards() % ranks == 0,
           "a smaller group consists of whole nodes and divides the shard group");
    regather_.lane = std::make_unique<comm::MpiCommunicator>(
        comm::split_lane(mesh.lanes.lane, static_cast<int>(ranks / place().node_size)), progress(),
        channel_names(layout));
    std::int64_t offset = 0;
    for (const Unit& each : layout.units) {
        regather_.offsets.push_back(offset);
        offset += each.padded() / ranks;
    }
    regather_.memory = AlignedBuffer(offset, options.compute);
}

TypedSpan SlottedStore::unsharded(std::int64_t index) {
    const auto& slot = slots_.slot(static_cast<std::size_t>(index));
    return parameter_memory().part(slot.offset, slot.numel);
}

namespace {

/// Blocks of `count` elements, `distance` of them apart, the first one being number `first`.
RankBlocks blocks_in(const TypedSpan& flat, std::int64_t count, std::int64_t first,
                     std::int64_t distance) {
    return {flat.part(first * count, count).data, count, distance * count, flat.dtype, flat.device};
}

}  // namespace

RankBlocks SlottedStore::lane_blocks(std::int64_t index) {
    return blocks_in(unsharded(index), unit(index).shard_numel(), place().node_rank,
                     place().node_size);
}

RankBlocks SlottedStore::regather_blocks(std::int64_t index) {
    return blocks_in(unsharded(index), unit(index).padded() / options().regather_ranks,
                     place().node_rank, place().node_size);
}

TypedSpan SlottedStore::regather_part(std::int64_t index) {
    return regather_.memory.typed().part(regather_.offsets[static_cast<std::size_t>(index)],
                                         unit(index).padded() / options().regather_ranks);
}

void SlottedStore::start_fill(std::int64_t index) {
    SlotState& state = state_of(index);
    ensure(state.phase == SlotState::Phase::kEmpty,
           "a slot is refilled only after its unit was released");
    disturbance().delay();
    state.phase = SlotState::Phase::kFilling;
    state.unit = index;
    if (regather_.held[static_cast<std::size_t>(index)]) {
        const RankBlocks blocks = regather_blocks(index);
        const TypedSpan part = regather_part(index);
        std::copy_n(part.data, part.bytes(), blocks.block(regather_.lane->rank()));
        state.gather = regather_.lane->all_gather(blocks, gather_channel(index));
        parameter_traffic().copied += part.bytes();
        count_gather(index, options().regather_ranks);
        return;
    }
    const TypedSpan own = shard_of(unsharded(index), index);
    kernels::narrow(master(index).as<float>(), own);
    if (lane() != nullptr) {
        state.gather = lane()->all_gather(lane_blocks(index), gather_channel(index));
    }
    parameter_traffic().copied += own.bytes();
    count_gather(index, place().shards());
}

void SlottedStore::prefetch(std::int64_t index) {
    SlotState& state = state_of(index);
    if (state.phase != SlotState::Phase::kEmpty) return;
    // A slower rank of the node may still read the slot: then the fill starts when it is needed.
    if (arena().reached(released_channel(index), state.fills)) start_fill(index);
}

void SlottedStore::acquire(std::int64_t index) {
    SlotState& state = state_of(index);
    ++state.leases;
    if (holds(state, index) && state.phase == SlotState::Phase::kUnsharded) {
        if (std::exchange(state.left_to_group, false)) {
            count_gather(index, options().regather_ranks);
        }
        return;
    }
    if (!holds(state, index)) {
        ensure(state.phase == SlotState::Phase::kEmpty,
               "a unit is given up before another one needs its slot");
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
    state.phase = SlotState::Phase::kUnsharded;
}

void SlottedStore::release(const UnitUse& use) {
    SlotState& state = state_of(use.unit);
    if (--state.leases > 0 || use.after == Reshard::kKeep) return;
    if (use.after == Reshard::kToGroup) {
        if (regather_.lane == nullptr) {  // the node keeps it
            state.left_to_group = true;
            return;
        }
        hold_part(use.unit);
    }
    reshard(use.unit);
}

void SlottedStore::hold_part(std::int64_t index) {
    if (regather_.held[static_cast<std::size_t>(index)]) return;
    const TypedSpan part = regather_part(index);
    std::copy_n(regather_blocks(index).block(regather_.lane->rank()), part.bytes(), part.data);
    parameter_traffic().copied += part.bytes();
    regather_.held[static_cast<std::size_t>(index)] = true;
}

void SlottedStore::reshard(std::int64_t index) {
    SlotState& state = state_of(index);
    state.phase = SlotState::Phase::kEmpty;
    state.left_to_group = false;
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
        TypedSpan block = unsharded(index);
        block.data = blocks.block(node);
        block.count = blocks.block_count;
        disturbance().poison(block);
    }
}

/// Readers read slots, never the master shard: nobody is waited for.
void SlottedStore::begin_update(std::int64_t index) {
    regather_.held[static_cast<std::size_t>(index)] = false;
    SlotState& state = state_of(index);
    if (holds(state, index) && state.phase == SlotState::Phase::kUnsharded) reshard(index);
}

void SlottedStore::publish(std::int64_t index) {
    ensure(!holds(state_of(index), index),
           "parameters are updated while no fill of the unit is in flight");
}

Traffic SlottedStore::traffic() const {
    Traffic sum = ArenaStore::traffic();
    if (regather_.lane != nullptr) sum.lane_received += regather_.lane->bytes_received();
    return sum;
}

std::vector<Allocation> SlottedStore::allocations() const {
    auto list = ArenaStore::allocations();
    list.push_back(
        {"parameter slots", slots_.numel() * size_of(options().compute), place().node_size > 1});
    list.push_back({"fp32 master shards", masters_.bytes()});
    if (!regather_.memory.empty()) {
        list.push_back({"parts of the smaller group", regather_.memory.bytes()});
    }
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
