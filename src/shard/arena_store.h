// What the stores on a node-shared arena have in common.
#pragma once

#include "comm/communicator.h"
#include "comm/node_arena.h"
#include "comm/progress.h"
#include "comm/progress_thread.h"
#include "comm/topology.h"
#include "shard/grad_reducer.h"
#include "shard/store_options.h"
#include "shard/unit_store.h"

#include <memory>
#include <optional>
#include <span>

namespace fullshard::shard {

/// One arena a node: first the unsharded parameters (all units, or slots for some), then the
/// gradient slots of each local rank. Gradients are GradReducer's work; subclasses add the
/// parameters' side.
class ArenaStore : public UnitStore {
  public:
    GradSink& grad_sink(std::int64_t unit) override { return reducer_.sink(unit); }
    void begin_gradients(std::int64_t unit) override { reducer_.begin(unit); }
    void reduce(std::int64_t unit) override { reducer_.reduce(unit); }
    void finish_reductions() override { reducer_.finish(); }
    comm::ProgressThread::Computing computing() override;
    std::int64_t owned_begin(std::int64_t unit) const override;
    TypedSpan gradient(std::int64_t unit) const override { return reducer_.gradient(unit); }
    std::vector<Allocation> allocations() const override;
    Traffic traffic() const override;

  protected:
    /// `parameter_numel` elements and `parameter_channels` counters of the arena are the
    /// subclass's. Collective over the mesh's ranks.
    ArenaStore(const Layout& layout, const Schedule& schedule, const comm::Mesh& mesh,
               const StoreOptions& options, std::int64_t parameter_numel,
               std::int64_t parameter_channels);

    const Layout& layout() const { return layout_; }
    const Unit& unit(std::int64_t index) const {
        return layout_.units[static_cast<std::size_t>(index)];
    }
    const Place& place() const { return place_; }
    const StoreOptions& options() const { return options_; }
    /// This rank's shard of a flat parameter.
    TypedSpan shard_of(const TypedSpan& flat, std::int64_t unit) const;
    TypedSpan parameter_memory() const { return parameters_; }
    comm::NodeArena& arena() { return arena_; }
    const comm::NodeArena& arena() const { return arena_; }
    comm::Communicator* lane() { return lane_.get(); }
    /// Of everything that this store waits for.
    comm::Progress& progress() { return progress_; }
    Disturbance& disturbance() { return disturbance_; }
    /// Counts an unshard over `ranks` ranks, each of which held an equal part.
    void count_gather(std::int64_t unit, std::int64_t ranks);
    Traffic& parameter_traffic() { return parameter_traffic_; }

  private:
    Layout layout_;
    StoreOptions options_;
    SlotPlan gradient_slots_;
    Place place_;
    Disturbance disturbance_;
    comm::Progress progress_;
    comm::NodeArena arena_;
    TypedSpan parameters_;
    std::unique_ptr<comm::Communicator> lane_;
    std::unique_ptr<comm::Communicator> replicas_;
    GradReducer reducer_;
    Traffic parameter_traffic_;
    std::optional<comm::ProgressThread> thread_;  ///< last: it uses what is above
};

/// fp32 master shards of all units, in memory of their own.
class MasterShards {
  public:
    explicit MasterShards(const Layout& layout);
    std::span<float> operator[](std::int64_t unit) const;
    std::int64_t bytes() const { return memory_.bytes(); }

  private:
    AlignedBuffer memory_;
    std::vector<std::int64_t> offsets_;  ///< by unit, and the end
};

}  // namespace fullshard::shard
