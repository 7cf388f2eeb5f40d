// NO_SHARD: every rank holds everything. The independent reference for the sharded stores.
#pragma once

#include "base/aligned_buffer.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/progress.h"
#include "shard/disturbance.h"
#include "shard/slot_grad_sink.h"
#include "shard/store_options.h"
#include "shard/tree_accumulator.h"
#include "shard/unit_store.h"

#include <memory>

namespace fullshard::shard {

/// Parameters, gradients and optimizer state are private and whole; gradients are summed by an
/// all-reduce per unit, for each micro-batch or, under SumOrder::kFast, once a step. Shares no code
/// with the arena stores but the sink and the sum over micro-batches.
class PrivateStore final : public UnitStore {
  public:
    /// Collective over `replicas`.
    PrivateStore(const Layout& layout, const Schedule& schedule, const comm::Group& replicas,
                 const StoreOptions& options);

    TypedSpan unsharded(std::int64_t unit) override;
    void prefetch(std::int64_t) override {}
    GradSink& grad_sink(std::int64_t unit) override {
        return sinks_[static_cast<std::size_t>(unit)];
    }
    void begin_gradients(std::int64_t unit) override;
    void reduce(std::int64_t unit) override;
    void finish_reductions() override;
    std::int64_t owned_begin(std::int64_t) const override { return 0; }
    TypedSpan gradient(std::int64_t unit) const override;
    TypedSpan master(std::int64_t unit) override;
    void begin_update(std::int64_t) override {}
    void publish(std::int64_t unit) override;
    std::vector<Allocation> allocations() const override;
    Traffic traffic() const override { return traffic_; }
    std::string describe() const override;

  private:
    void acquire(std::int64_t) override {}
    void release(const UnitUse&) override {}
    const Unit& unit(std::int64_t index) const {
        return layout_.units[static_cast<std::size_t>(index)];
    }
    void all_reduce(std::int64_t unit, std::span<float> gradient);

    Layout layout_;
    StoreOptions options_;
    comm::Progress progress_;
    std::unique_ptr<comm::Communicator> replicas_;
    Disturbance disturbance_;
    std::int64_t contributions_;         ///< sums of a unit in one step
    AlignedBuffer masters_;              ///< fp32
    AlignedBuffer compute_;              ///< the same in the compute type, where that is another
    std::vector<std::int64_t> offsets_;  ///< by unit, in both
    SlotPlan gradient_slots_;
    AlignedBuffer gradient_memory_;    ///< slots, where gradients are not fp32
    std::vector<SlotGradSink> sinks_;  ///< by unit
    AlignedBuffer accumulator_memory_;
    std::vector<TreeAccumulator> accumulators_;  ///< by unit; of no length for frozen ones
    std::vector<std::int64_t> begun_;            ///< by unit: micro-batches of this step
    AlignedBuffer scratch_;                      ///< what the all-reduce receives
    AlignedBuffer rounded_;                      ///< a gradient in the reduce type, where not fp32
    Traffic traffic_;
};

}  // namespace fullshard::shard
