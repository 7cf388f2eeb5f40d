// Sums gradients over ranks and micro-batches: the reduction half of every sharded store.
#pragma once

#include "base/aligned_buffer.h"
#include "comm/communicator.h"
#include "comm/node_arena.h"
#include "shard/disturbance.h"
#include "shard/place.h"
#include "shard/slot_grad_sink.h"
#include "shard/store_options.h"
#include "shard/tree_accumulator.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::shard {

/// Channels of the lane's communicator. At most one reduction is in flight, and gathers of
/// different units may be started in different orders on different ranks, so each unit has a
/// channel for those.
constexpr int kReduceChannel = 0;
constexpr int gather_channel(std::int64_t unit) {
    return 1 + static_cast<int>(unit);
}

/// What those channels carry, for reports and errors. The layout outlives the result.
std::function<std::string(int channel)> channel_names(const Layout& layout);

/// Communicators that gradients cross; null where there is nobody to talk to.
struct ReductionPeers {
    comm::Communicator* lane = nullptr;
    comm::Communicator* replicas = nullptr;
};

/// Each rank writes a unit's gradient into its own slot in the arena. Once all ranks of the node
/// have, each sums, in tree order over the node, the shards of its lane (one a node); lanes then
/// exchange and sum over the nodes, replicas over the shard groups, and the result is added to the
/// sum over micro-batches. Replicas wait for the last micro-batch under SumOrder::kFast.
///
/// A reduction is waited for only when its slot is needed again or at the end of the step: the
/// slowest rank has until then. Reductions are completed in the order they were started, on every
/// rank.
///
/// A shard group of one rank whose gradients are fp32 has no slots: backward writes where
/// micro-batches are added up.
class GradReducer {
  public:
    /// Elements of arena memory, of type `options.gradient()`, that all ranks of a node take.
    static std::int64_t arena_numel(const SlotPlan& slots, const Place& place,
                                    const StoreOptions& options);
    /// Counters it uses in the arena, from `first_channel` on.
    static std::int64_t channels(const SlotPlan& slots);

    /// `memory` is the arena's part for gradient slots.
    GradReducer(const Layout& layout, const SlotPlan& slots, const Place& place,
                const StoreOptions& options, comm::NodeArena& arena, const TypedSpan& memory,
                std::int64_t first_channel, const ReductionPeers& peers, Disturbance& disturbance);

    GradSink& sink(std::int64_t unit) { return sinks_[static_cast<std::size_t>(unit)]; }
    void begin(std::int64_t unit);
    void reduce(std::int64_t unit);
    void finish();
    /// Goes on with reductions under way as far as it can without waiting; whether any are left.
    bool advance();
    TypedSpan gradient(std::int64_t unit) const;

    /// Private memory beside the slots.
    std::vector<Allocation> allocations() const;
    const Traffic& traffic() const { return traffic_; }

  private:
    /// The one reduction that has left this rank's node, and how far it is.
    struct Flight {
        enum class Stage : std::uint8_t { kNone, kLane, kReplicas, kReplicasAtEnd };
        Stage stage = Stage::kNone;
        std::int64_t unit = 0;
        comm::Handle handle;
    };

    const Unit& unit(std::int64_t index) const {
        return layout_.units[static_cast<std::size_t>(index)];
    }
    TreeAccumulator& accumulator(std::int64_t unit) {
        return accumulators_[static_cast<std::size_t>(unit)];
    }
    TypedSpan slot(std::int64_t node_rank, std::int64_t unit) const;
    std::size_t slot_index(std::int64_t unit) const {
        return slots_.slot_of_unit[static_cast<std::size_t>(unit)];
    }
    std::int64_t ready_channel(std::size_t slot) const {
        return first_channel_ + 2 * static_cast<std::int64_t>(slot);
    }
    std::int64_t consumed_channel(std::size_t slot) const { return ready_channel(slot) + 1; }
    bool pending_in(std::size_t slot) const;
    TypedSpan begin_slot(std::int64_t unit);
    void start_oldest();
    /// Where the sum over the shard group goes, in the reduce type.
    TypedSpan group_sum(std::int64_t unit);
    void sum_over_node(std::int64_t unit);
    void add_to_step(std::int64_t unit);
    void all_reduce_over_replicas(std::int64_t unit, const TypedSpan& values, Flight::Stage stage);
    void commit(std::int64_t unit);
    void advance_flight();
    void finish_flight();

    const Layout& layout_;
    const SlotPlan& slots_;
    Place place_;
    StoreOptions options_;
    comm::NodeArena& arena_;
    TypedSpan memory_;
    std::int64_t first_channel_;
    ReductionPeers peers_;
    Disturbance& disturbance_;

    bool without_slots_;          ///< backward writes into the accumulators
    bool lanes_read_slots_;       ///< the exchange over lanes takes its blocks from the slot itself
    std::int64_t contributions_;  ///< reductions of a unit in one step
    std::vector<SlotGradSink> sinks_;  ///< by unit
    AlignedBuffer accumulator_memory_;
    std::vector<TreeAccumulator> accumulators_;  ///< by unit; of no length for frozen ones
    std::vector<std::int64_t> begun_;            ///< by unit: micro-batches of this step
    std::vector<std::int64_t> added_;            ///< by unit: reductions of this step
    std::vector<std::uint64_t> uses_;            ///< by slot: reductions started out of it
    std::vector<std::int64_t> pending_;          ///< units whose slots are full, oldest first
    std::vector<const std::byte*> sources_;      ///< scratch of sum_over_node
    AlignedBuffer lane_staging_;                 ///< a lane's shards, summed over the node
    AlignedBuffer lane_scratch_;                 ///< what other nodes send
    AlignedBuffer replica_scratch_;              ///< what other replicas send
    AlignedBuffer rounded_;                      ///< a shard in the reduce type, where not fp32
    Flight flight_;
    Traffic traffic_;
};

}  // namespace fullshard::shard
