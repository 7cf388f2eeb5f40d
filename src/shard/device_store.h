// Units in the memory of a device: gathered into slots and reduced out of them by its streams.
#pragma once

#include "comm/stream_communicator.h"
#include "device/device.h"
#include "device/span_recorder.h"
#include "device/staging.h"
#include "kernels/stream_kernels.h"
#include "shard/slot_grad_sink.h"
#include "shard/store_options.h"
#include "shard/unit_store.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fullshard::shard {

/// Everything is enqueued and nothing waited for: `unshard` orders the compute stream behind the
/// gather of the unit, `release` lets the slot's next gather start once the compute stream is
/// there, and the same for gradient slots. The host may run ahead by whole steps. Sums over
/// micro-batches are added as they come (SumOrder::kFast), those over replicas once a step.
///
/// Who computes does so on the compute stream, or orders his streams around it; there the results
/// of `unshard`, `begin_gradients` and `finish_reductions` hold, and what `release`, `reduce` and
/// `publish` say is true of what was enqueued before. `prefetch` starts in any case: the device
/// waits for the slot, not the host.
class DeviceStore final : public UnitStore {
  public:
    /// What it works with; all of it outlives the store.
    struct Means {
        device::Device& device;
        device::Stream& compute;
        const kernels::StreamKernels& kernels;
        comm::StreamMesh& mesh;
        device::Staging& staging;     ///< in the order of the compute stream
        device::SpanRecorder& spans;  ///< of gathers and reductions in flight
    };

    /// Residency::kSmallerGroup and SumOrder::kTree are LogicErrors.
    DeviceStore(const Layout& layout, const Schedule& schedule, const StoreOptions& options,
                const Means& means);

    TypedSpan unsharded(std::int64_t unit) override;
    void prefetch(std::int64_t unit) override;

    GradSink& grad_sink(std::int64_t unit) override { return sinks_[index(unit)]; }
    void begin_gradients(std::int64_t unit) override;
    void reduce(std::int64_t unit) override;
    void finish_reductions() override;

    std::int64_t owned_begin(std::int64_t unit) const override;
    TypedSpan gradient(std::int64_t unit) const override;
    TypedSpan master(std::int64_t unit) override;
    TypedSpan updated_copy(std::int64_t unit) override;
    void read_master(std::int64_t unit, std::span<float> values) override;
    void set_master(std::int64_t unit, std::span<const float> values) override;
    void begin_update(std::int64_t unit) override;
    void publish(std::int64_t unit) override;

    std::vector<Allocation> allocations() const override;
    Traffic traffic() const override;
    std::string describe() const override;

  private:
    /// What was enqueued last for a slot of parameters.
    struct ParameterSlot {
        enum class Phase : std::uint8_t { kEmpty, kFilled };
        Phase phase = Phase::kEmpty;
        std::int64_t unit = 0;  ///< whose parameters it holds
        std::int64_t leases = 0;
        std::unique_ptr<device::Event> filled;    ///< on the gather stream
        std::unique_ptr<device::Event> released;  ///< on the compute stream
    };
    struct GradientSlot {
        std::unique_ptr<device::Event> written;   ///< on the compute stream
        std::unique_ptr<device::Event> consumed;  ///< on the reduce stream
    };
    /// A unit's part in a step.
    struct UnitState {
        std::int64_t begun = 0;                  ///< micro-batches
        std::int64_t added = 0;                  ///< reductions
        std::unique_ptr<device::Event> updated;  ///< on the compute stream
    };

    static std::size_t index(std::int64_t unit) { return static_cast<std::size_t>(unit); }
    const Unit& unit(std::int64_t i) const { return layout_.units[index(i)]; }
    ParameterSlot& slot_of(std::int64_t unit) {
        return parameter_state_[parameter_slots_.slot_of_unit[index(unit)]];
    }
    GradientSlot& gradient_slot_of(std::int64_t unit) {
        return gradient_state_[gradient_slots_.slot_of_unit[index(unit)]];
    }
    void acquire(std::int64_t unit) override;
    void release(const UnitUse& use) override;
    void fill(std::int64_t unit);
    void reshard(ParameterSlot& slot, std::int64_t unit);
    TypedSpan gradient_memory(std::int64_t unit) const;
    TypedSpan shard_of(const TypedSpan& flat, std::int64_t unit) const;
    TypedSpan part_of(const device::Buffer& shards, DType dtype, std::int64_t unit) const;
    /// What a fill copies into the slot: the shard in the compute type.
    TypedSpan own_shard(std::int64_t unit) const;
    void add_to_step(const TypedSpan& sum, std::int64_t unit);
    void all_reduce_over_replicas(std::int64_t unit);
    void poison(const TypedSpan& memory);

    Layout layout_;
    StoreOptions options_;
    Means means_;
    SlotPlan parameter_slots_;
    SlotPlan gradient_slots_;
    DType gradient_type_;                          ///< of gradient slots, and of what travels
    std::vector<std::int64_t> shard_offsets_;      ///< by unit, in elements of one shard of each
    std::vector<std::int64_t> trainable_offsets_;  ///< the same of trainable units alone

    std::unique_ptr<device::Stream> gather_;
    std::unique_ptr<device::Stream> reduce_;
    std::unique_ptr<device::Event> reduced_;  ///< all reductions so far
    device::Buffer masters_;
    device::Buffer copies_;  ///< of the masters in the compute type, unless that is fp32
    device::Buffer parameters_;
    device::Buffer gradients_;
    device::Buffer sums_;     ///< fp32, of this rank's shards
    device::Buffer rounded_;  ///< a shard in the reduce type, for replicas, where that is not fp32
    std::vector<ParameterSlot> parameter_state_;
    std::vector<GradientSlot> gradient_state_;
    std::vector<UnitState> units_;
    std::vector<SlotGradSink> sinks_;  ///< by unit
    Traffic traffic_;
};

}  // namespace fullshard::shard
