// What the stores on a node-shared arena have in common.
#pragma once

#include "comm/communicator.h"
#include "comm/node_arena.h"
#include "comm/topology.h"
#include "shard/grad_reducer.h"
#include "shard/store_options.h"
#include "shard/unit_store.h"

#include <memory>
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
    std::int64_t owned_begin(std::int64_t unit) const override;
    std::span<const float> gradient(std::int64_t unit) const override {
        return reducer_.gradient(unit);
    }
    std::vector<Allocation> allocations() const override;
    Traffic traffic() const override;

  protected:
    /// `parameter_numel` elements and `parameter_channels` counters of the arena are the
    /// subclass's. Collective over the lanes' ranks.
    ArenaStore(const Layout& layout, const comm::NodeLanes& lanes, const StoreOptions& options,
               std::int64_t parameter_numel, std::int64_t parameter_channels);

    const Layout& layout() const { return layout_; }
    const Unit& unit(std::int64_t index) const {
        return layout_.units[static_cast<std::size_t>(index)];
    }
    const Place& place() const { return place_; }
    std::span<float> shard_of(std::span<float> flat, std::int64_t unit) const;
    std::span<float> parameter_memory() const { return parameters_; }
    comm::NodeArena& arena() { return arena_; }
    const comm::NodeArena& arena() const { return arena_; }
    comm::Communicator* lane() { return lane_.get(); }
    Disturbance& disturbance() { return disturbance_; }
    void count_gather(std::int64_t unit);
    Traffic& parameter_traffic() { return parameter_traffic_; }

  private:
    Layout layout_;
    SlotPlan gradient_slots_;
    Place place_;
    Disturbance disturbance_;
    comm::NodeArena arena_;
    std::span<float> parameters_;
    std::unique_ptr<comm::Communicator> lane_;
    GradReducer reducer_;
    Traffic parameter_traffic_;
};

}  // namespace fullshard::shard
