// Sums gradients out of node-shared slots: the reduction half of every sharded store.
#pragma once

#include "comm/communicator.h"
#include "comm/node_arena.h"
#include "shard/disturbance.h"
#include "shard/place.h"
#include "shard/slot_grad_sink.h"
#include "shard/tree_accumulator.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::shard {

/// Channels of the lane's communicator. At most one reduction is in flight, and gathers of
/// different units may be started in different orders on different ranks, so each unit has a
/// channel for those.
constexpr int kReduceChannel = 0;
constexpr int gather_channel(std::int64_t unit) {
    return 1 + static_cast<int>(unit);
}

/// Each rank writes a unit's gradient into its own slot in the arena. Once all ranks of the node
/// have, each sums, in tree order over the node, the shards of its lane (one a node); lanes then
/// exchange and sum over the nodes, and the result is added to the tree over micro-batches.
///
/// A reduction is completed only when its slot is needed again or at the end of the step: the
/// slowest rank has until then. Reductions are completed in the order they were started, on every
/// rank.
class GradReducer {
  public:
    /// Elements of arena memory that the slots of all ranks of a node take.
    static std::int64_t arena_numel(const SlotPlan& slots, const Place& place);
    /// Counters it uses in the arena, from `first_channel` on.
    static std::int64_t channels(const SlotPlan& slots);

    /// `memory` is the arena's part for gradient slots. `lane` may be null if lane_size is 1.
    GradReducer(const Layout& layout, const SlotPlan& slots, const Place& place,
                std::int64_t micro_batches, comm::NodeArena& arena, std::span<float> memory,
                std::int64_t first_channel, comm::Communicator* lane, Disturbance& disturbance);

    GradSink& sink(std::int64_t unit) { return sinks_[static_cast<std::size_t>(unit)]; }
    void begin(std::int64_t unit);
    void reduce(std::int64_t unit);
    void finish();
    std::span<const float> gradient(std::int64_t unit) const;

    /// Private memory beside the slots.
    std::vector<Allocation> allocations() const;
    const Traffic& traffic() const { return traffic_; }

  private:
    struct LaneExchange {
        std::int64_t unit = 0;
        comm::Handle handle;
    };

    std::span<float> slot(std::int64_t node_rank, std::int64_t unit) const;
    std::int64_t ready_channel(std::size_t slot) const {
        return first_channel_ + 2 * static_cast<std::int64_t>(slot);
    }
    std::int64_t consumed_channel(std::size_t slot) const { return ready_channel(slot) + 1; }
    bool pending_in(std::size_t slot) const;
    void start_oldest();
    void sum_over_node(std::int64_t unit);
    void exchange(std::int64_t unit, const RankBlocks& blocks);
    void finish_lane_exchange();

    const Layout& layout_;
    const SlotPlan& slots_;
    Place place_;
    comm::NodeArena& arena_;
    std::span<float> memory_;
    std::int64_t first_channel_;
    comm::Communicator* lane_;
    Disturbance& disturbance_;

    std::vector<SlotGradSink> sinks_;  ///< by unit
    std::vector<float> accumulator_memory_;
    std::vector<TreeAccumulator> accumulators_;  ///< by unit
    std::vector<std::uint64_t> uses_;            ///< by slot: reductions started out of it
    std::vector<std::int64_t> pending_;          ///< units whose slots are full, oldest first
    std::vector<const float*> sources_;          ///< scratch of sum_over_node
    std::vector<float> lane_staging_;            ///< a lane's shards, summed over the node
    std::vector<float> lane_scratch_;            ///< what other nodes send
    LaneExchange exchange_;
    Traffic traffic_;
};

}  // namespace fullshard::shard
