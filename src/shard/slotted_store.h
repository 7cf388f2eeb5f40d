// Units are gathered into slots when they are needed and given up afterwards.
#pragma once

#include "shard/arena_store.h"

#include <memory>

namespace fullshard::shard {

/// A slot is shared by the ranks of a node and filled by lanes: each rank writes its own shard and
/// gathers those of its local rank on the other nodes, so that a byte enters a node once. Without
/// node sharing every rank has slots of its own and the lane is the shard group: the path of NCCL.
///
/// A unit that is kept between visits stays in its slot. With Residency::kSmallerGroup each rank
/// keeps, in the compute type, its part of what a smaller group of ranks holds together, and all
/// passes but the first one after an update gather within that group (ZeRO++'s hpZ).
class SlottedStore final : public ArenaStore {
  public:
    /// Collective.
    SlottedStore(const Layout& layout, const Schedule& schedule, const comm::Mesh& mesh,
                 const StoreOptions& options);

    TypedSpan unsharded(std::int64_t unit) override;
    void prefetch(std::int64_t unit) override;
    TypedSpan master(std::int64_t unit) override { return masters_[unit]; }
    void begin_update(std::int64_t unit) override;
    void publish(std::int64_t unit) override;
    std::vector<Allocation> allocations() const override;
    Traffic traffic() const override;
    std::string describe() const override;

  private:
    SlottedStore(const Layout& layout, const Schedule& schedule, const comm::Mesh& mesh,
                 const StoreOptions& options, SlotPlan slots);

    /// What this rank knows of a slot. Fills and releases are counted alike on all ranks of the
    /// node.
    struct SlotState {
        enum class Phase : std::uint8_t { kEmpty, kFilling, kUnsharded };
        Phase phase = Phase::kEmpty;
        std::int64_t unit = 0;  ///< whose parameters it holds or is about to
        std::int64_t leases = 0;
        bool left_to_group = false;  ///< kept in place of the smaller group's parts
        std::uint64_t fills = 0;     ///< completed by this rank
        comm::Handle gather;
    };

    void acquire(std::int64_t unit) override;
    void release(const UnitUse& use) override;
    SlotState& state_of(std::int64_t unit) { return states_[slot_index(unit)]; }
    bool holds(const SlotState& state, std::int64_t unit) const {
        return state.phase != SlotState::Phase::kEmpty && state.unit == unit;
    }
    std::size_t slot_index(std::int64_t unit) const {
        return slots_.slot_of_unit[static_cast<std::size_t>(unit)];
    }
    std::int64_t filled_channel(std::int64_t unit) const {
        return 3 * static_cast<std::int64_t>(slot_index(unit));
    }
    std::int64_t released_channel(std::int64_t unit) const { return filled_channel(unit) + 1; }
    std::int64_t read_channel(std::int64_t unit) const { return filled_channel(unit) + 2; }
    void start_fill(std::int64_t unit);
    void hold_part(std::int64_t unit);
    void reshard(std::int64_t unit);
    void poison_own_blocks(std::int64_t unit);
    /// The shards of this rank's lane in the unit's slot.
    RankBlocks lane_blocks(std::int64_t unit);

    /// The smaller group's parts, where one is gathered over nodes or ranks without node sharing.
    struct Regather {
        std::unique_ptr<comm::Communicator> lane;
        AlignedBuffer memory;
        std::vector<std::int64_t> offsets;  ///< by unit
        std::vector<bool> held;             ///< by unit: its part is that of the current parameters
    };
    RankBlocks regather_blocks(std::int64_t unit);
    TypedSpan regather_part(std::int64_t unit);

    SlotPlan slots_;
    std::vector<SlotState> states_;
    MasterShards masters_;
    Regather regather_;
};

}  // namespace fullshard::shard
