// NO_SHARD: every rank holds everything. The independent reference for the sharded stores.
#pragma once

#include "base/aligned_buffer.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "shard/disturbance.h"
#include "shard/slot_grad_sink.h"
#include "shard/store_options.h"
#include "shard/tree_accumulator.h"
#include "shard/unit_store.h"

#include <memory>

namespace fullshard::shard {

/// Parameters, gradients and optimizer state are private and whole; gradients are summed by an
/// all-reduce per unit and micro-batch. Shares no code with the arena stores but the sink and the
/// tree over micro-batches.
class PrivateStore final : public UnitStore {
  public:
    /// Collective over `replicas`.
    PrivateStore(const Layout& layout, const comm::Group& replicas, const StoreOptions& options);

    std::span<float> unsharded(std::int64_t unit) override;
    void prefetch(std::int64_t) override {}
    GradSink& grad_sink(std::int64_t unit) override {
        return sinks_[static_cast<std::size_t>(unit)];
    }
    void begin_gradients(std::int64_t unit) override;
    void reduce(std::int64_t unit) override;
    void finish_reductions() override;
    std::int64_t owned_begin(std::int64_t) const override { return 0; }
    std::span<const float> gradient(std::int64_t unit) const override;
    std::span<float> master(std::int64_t unit) override { return unsharded(unit); }
    void begin_update(std::int64_t) override {}
    void publish(std::int64_t) override {}
    std::vector<Allocation> allocations() const override;
    Traffic traffic() const override { return traffic_; }
    std::string describe() const override;

  private:
    void acquire(std::int64_t) override {}
    void release(std::int64_t) override {}

    Layout layout_;
    std::unique_ptr<comm::Communicator> replicas_;
    Disturbance disturbance_;
    AlignedBuffer parameters_;
    std::vector<std::size_t> offsets_;  ///< by unit
    std::vector<SlotGradSink> sinks_;   ///< by unit
    AlignedBuffer accumulator_memory_;
    std::vector<TreeAccumulator> accumulators_;  ///< by unit
    std::vector<float> scratch_;                 ///< what the all-reduce receives
    Traffic traffic_;
};

}  // namespace fullshard::shard
