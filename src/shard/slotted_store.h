// Units are gathered into slots when they are needed and given up afterwards.
#pragma once

#include "shard/arena_store.h"

namespace fullshard::shard {

/// A slot is shared by the ranks of a node and filled by lanes: each rank writes its own shard and
/// gathers those of its local rank on the other nodes, so that a byte enters a node once. Without
/// node sharing every rank has slots of its own and the lane is the world: the path of NCCL.
class SlottedStore final : public ArenaStore {
  public:
    /// Collective.
    SlottedStore(const Layout& layout, const comm::NodeLanes& lanes, const StoreOptions& options);

    std::span<float> unsharded(std::int64_t unit) override;
    void prefetch(std::int64_t unit) override;
    std::span<float> master(std::int64_t unit) override;
    void begin_update(std::int64_t) override {}  // readers read slots, never the master shard
    void publish(std::int64_t unit) override;
    std::vector<Allocation> allocations() const override;
    std::string describe() const override;

  private:
    /// What this rank knows of a slot. Fills and releases are counted alike on all ranks of the
    /// node.
    struct SlotState {
        std::int64_t filling = kEmpty;  ///< unit whose fill was started, kEmpty before
        bool leased = false;
        std::uint64_t fills = 0;  ///< completed by this rank
        comm::Handle gather;
    };
    static constexpr std::int64_t kEmpty = -1;

    void acquire(std::int64_t unit) override;
    void release(std::int64_t unit) override;
    SlotState& state_of(std::int64_t unit) { return states_[slot_index(unit)]; }
    std::size_t slot_index(std::int64_t unit) const {
        return slots_.slot_of_unit[static_cast<std::size_t>(unit)];
    }
    std::int64_t filled_channel(std::int64_t unit) const {
        return 3 * static_cast<std::int64_t>(slot_index(unit));
    }
    std::int64_t released_channel(std::int64_t unit) const { return filled_channel(unit) + 1; }
    std::int64_t read_channel(std::int64_t unit) const { return filled_channel(unit) + 2; }
    void start_fill(std::int64_t unit);
    void poison_own_blocks(std::int64_t unit);
    RankBlocks lane_blocks(std::int64_t unit);

    SlotPlan slots_;
    std::vector<SlotState> states_;
    std::vector<float> master_memory_;
    std::vector<std::size_t> master_offsets_;
};

}  // namespace fullshard::shard
