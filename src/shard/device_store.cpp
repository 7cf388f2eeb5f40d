#include "shard/device_store.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fullshard::shard {

namespace {

constexpr std::byte kNanByte{0xff};  // of every floating-point type, where all bytes are

std::vector<std::int64_t> offsets_of(const Layout& layout, bool trainable_only) {
    std::vector<std::int64_t> offsets{0};
    for (const Unit& unit : layout.units) {
        const bool counts = unit.trainable() || !trainable_only;
        offsets.push_back(offsets.back() + (counts ? unit.shard_numel() : 0));
    }
    return offsets;
}

}  // namespace

DeviceStore::DeviceStore(const Layout& layout, const Schedule& schedule,
                         const StoreOptions& options, const Means& means)
    : layout_(layout),
      options_(options),
      means_(means),
      parameter_slots_(plan_parameter_slots(layout, schedule, options, Place{})),
      gradient_slots_(plan_gradient_slots(layout, schedule, options)),
      gradient_type_(device_gradient_type(options)),
      shard_offsets_(offsets_of(layout, /*trainable_only=*/false)),
      trainable_offsets_(offsets_of(layout, /*trainable_only=*/true)),
      gather_(means.device.make_stream("gather", device::Priority::kHigh)),
      reduce_(means.device.make_stream("reduce", device::Priority::kHigh)),
      reduced_(means.device.make_event()) {
    ensure(options.order == SumOrder::kFast, "a device adds gradients as they come");
    ensure(options.residency != Residency::kSmallerGroup,
           "a device gathers over the whole shard group");
    const auto allocate = [&](const char* name, std::int64_t elements, DType type) {
        return means_.device.allocate(name, elements * size_of(type));
    };
    constexpr DType kMaster = DType::kFloat32;
    masters_ = allocate("fp32 master shards", shard_offsets_.back(), kMaster);
    if (options.compute != kMaster) {
        copies_ = allocate("shards in the compute type", shard_offsets_.back(), options.compute);
    }
    parameters_ = allocate("parameter slots", parameter_slots_.numel(), options.compute);
    gradients_ = allocate("gradient slots", gradient_slots_.numel(), gradient_type_);
    sums_ = allocate("gradient shards", trainable_offsets_.back(), kMaster);
    if (means_.mesh.replicas().size() > 1 && options.reduce != kMaster) {
        rounded_ = allocate("gradient shard in the reduce type", layout.largest_trainable_shard(),
                            options.reduce);
    }
    for (std::size_t i = 0; i < parameter_slots_.slots.size(); ++i) {
        ParameterSlot& slot = parameter_state_.emplace_back();
        slot.filled = means_.device.make_event();
        slot.released = means_.device.make_event();
    }
    for (std::size_t i = 0; i < gradient_slots_.slots.size(); ++i) {
        gradient_state_.push_back({means_.device.make_event(), means_.device.make_event()});
    }
    for (const Unit& each : layout_.units) {
        units_.push_back({.updated = means_.device.make_event()});
        sinks_.emplace_back(each);
    }
}

TypedSpan DeviceStore::unsharded(std::int64_t i) {
    const SlotPlan::Slot& slot = parameter_slots_.slot(index(i));
    return parameters_.typed(options_.compute).part(slot.offset, slot.numel);
}

TypedSpan DeviceStore::gradient_memory(std::int64_t i) const {
    const SlotPlan::Slot& slot = gradient_slots_.slot(index(i));
    return gradients_.typed(gradient_type_).part(slot.offset, slot.numel);
}

TypedSpan DeviceStore::part_of(const device::Buffer& shards, DType dtype, std::int64_t i) const {
    return shards.typed(dtype).part(shard_offsets_[index(i)], unit(i).shard_numel());
}

TypedSpan DeviceStore::own_shard(std::int64_t i) const {
    return copies_.bytes() > 0 ? part_of(copies_, options_.compute, i)
                               : part_of(masters_, DType::kFloat32, i);
}

std::int64_t DeviceStore::owned_begin(std::int64_t i) const {
    return means_.mesh.shard_group().rank() * unit(i).shard_numel();
}

TypedSpan DeviceStore::shard_of(const TypedSpan& flat, std::int64_t i) const {
    return flat.part(owned_begin(i), unit(i).shard_numel());
}

void DeviceStore::poison(const TypedSpan& memory) {
    if (options_.faults.poison) means_.compute.fill(memory, kNanByte);
}

void DeviceStore::fill(std::int64_t i) {
    ParameterSlot& slot = slot_of(i);
    slot.phase = ParameterSlot::Phase::kFilled;
    slot.unit = i;
    gather_->wait(*slot.released);
    gather_->wait(*units_[index(i)].updated);
    const auto span = means_.spans.record(
        *gather_, Lane::kGather, [&] { return "gather of " + unit(i).name(); }, /*in_flight=*/true);
    const TypedSpan whole = unsharded(i);
    const TypedSpan own = shard_of(whole, i);
    const std::int64_t ranks = means_.mesh.shard_group().size();
    gather_->copy(own_shard(i), own);
    means_.mesh.shard_group().all_gather(adjacent_blocks(whole, ranks), *gather_);
    gather_->record(*slot.filled);
    traffic_.copied += own.bytes();
    traffic_.gathered += whole.bytes() * (ranks - 1) / ranks;
}

void DeviceStore::prefetch(std::int64_t i) {
    if (slot_of(i).phase == ParameterSlot::Phase::kEmpty) fill(i);
}

void DeviceStore::acquire(std::int64_t i) {
    ParameterSlot& slot = slot_of(i);
    if (slot.phase == ParameterSlot::Phase::kEmpty) fill(i);
    ensure(slot.unit == i, "a unit is given up before another one needs its slot");
    if (slot.leases++ == 0) means_.compute.wait(*slot.filled);
}

void DeviceStore::release(const UnitUse& use) {
    ParameterSlot& slot = slot_of(use.unit);
    if (--slot.leases == 0 && use.after != Reshard::kKeep) reshard(slot, use.unit);
}

void DeviceStore::reshard(ParameterSlot& slot, std::int64_t i) {
    poison(unsharded(i));
    means_.compute.record(*slot.released);
    slot.phase = ParameterSlot::Phase::kEmpty;
}

void DeviceStore::begin_gradients(std::int64_t i) {
    const bool first = units_[index(i)].begun++ == 0;
    if (options_.accumulation == Accumulation::kUnsharded && !first) {
        sinks_[index(i)].resume();
        return;
    }
    means_.compute.wait(*gradient_slot_of(i).consumed);
    const TypedSpan memory = gradient_memory(i);
    poison(memory);
    sinks_[index(i)].begin(memory);
}

void DeviceStore::reduce(std::int64_t i) {
    UnitState& state = units_[index(i)];
    if (options_.accumulation == Accumulation::kUnsharded && state.begun < options_.micro_batches) {
        sinks_[index(i)].pause();
        return;
    }
    sinks_[index(i)].seal([this](const TypedSpan& rest) { means_.compute.zero(rest); });
    GradientSlot& slot = gradient_slot_of(i);
    means_.compute.record(*slot.written);
    // The compute stream has also read the last step's sum by then.
    reduce_->wait(*slot.written);
    const auto span = means_.spans.record(
        *reduce_, Lane::kReduce, [&] { return "reduction of " + unit(i).name(); },
        /*in_flight=*/true);
    const TypedSpan whole = gradient_memory(i);
    const TypedSpan own = shard_of(whole, i);
    comm::StreamCommunicator& ranks = means_.mesh.shard_group();
    ranks.reduce_scatter(adjacent_blocks(whole, ranks.size()), own, *reduce_);
    traffic_.reduced +=
        unit(i).padded() * size_of(options_.reduce) * (ranks.size() - 1) / ranks.size();
    add_to_step(own, i);
    reduce_->record(*slot.consumed);
    if (++state.added == reductions_a_step(options_)) all_reduce_over_replicas(i);
}

void DeviceStore::add_to_step(const TypedSpan& sum, std::int64_t i) {
    const TypedSpan step = gradient(i);
    if (units_[index(i)].added == 0) {
        means_.kernels.convert(sum, step, *reduce_);
    } else {
        means_.kernels.accumulate(sum, step, *reduce_);
    }
}

void DeviceStore::all_reduce_over_replicas(std::int64_t i) {
    comm::StreamCommunicator& replicas = means_.mesh.replicas();
    if (replicas.size() == 1) return;
    const TypedSpan step = gradient(i);
    TypedSpan values = step;
    if (options_.reduce != DType::kFloat32) {
        values = rounded_.typed(options_.reduce).part(0, step.count);
        means_.kernels.convert(step, values, *reduce_);
    }
    replicas.all_reduce(values, *reduce_);
    if (options_.reduce != DType::kFloat32) means_.kernels.convert(values, step, *reduce_);
    traffic_.reduced += 2 * values.bytes() * (replicas.size() - 1) / replicas.size();
}

void DeviceStore::finish_reductions() {
    reduce_->record(*reduced_);
    means_.compute.wait(*reduced_);
    for (std::size_t i = 0; i < units_.size(); ++i) {
        if (!layout_.units[i].trainable()) continue;
        ensure(units_[i].added == reductions_a_step(options_),
               "every micro-batch of a step is reduced");
        units_[i].begun = 0;
        units_[i].added = 0;
    }
}

TypedSpan DeviceStore::gradient(std::int64_t i) const {
    if (!unit(i).trainable()) return {};
    return sums_.typed(DType::kFloat32).part(trainable_offsets_[index(i)], unit(i).shard_numel());
}

TypedSpan DeviceStore::master(std::int64_t i) {
    return part_of(masters_, DType::kFloat32, i);
}

TypedSpan DeviceStore::updated_copy(std::int64_t i) {
    return copies_.bytes() > 0 ? part_of(copies_, options_.compute, i) : TypedSpan{};
}

void DeviceStore::read_master(std::int64_t i, std::span<float> values) {
    means_.staging.read(master(i), values);
}

void DeviceStore::set_master(std::int64_t i, std::span<const float> values) {
    const TypedSpan master = this->master(i);
    means_.staging.write(values, master);
    if (copies_.bytes() > 0) means_.kernels.convert(master, updated_copy(i), means_.compute);
    publish(i);
}

/// A gather that nobody waited for may still read the shard.
void DeviceStore::begin_update(std::int64_t i) {
    ParameterSlot& slot = slot_of(i);
    if (slot.phase != ParameterSlot::Phase::kFilled || slot.unit != i) return;
    means_.compute.wait(*slot.filled);
    reshard(slot, i);
}

void DeviceStore::publish(std::int64_t i) {
    means_.compute.record(*units_[index(i)].updated);
}

std::vector<Allocation> DeviceStore::allocations() const {
    std::vector<Allocation> list;
    const auto add = [&](const char* purpose, const device::Buffer& memory) {
        if (memory.bytes() > 0) list.push_back({purpose, memory.bytes()});
    };
    add("gradient shards (sums over micro-batches)", sums_);
    add("gradient shard in the reduce type", rounded_);
    add("gradient slots", gradients_);
    add("parameter slots", parameters_);
    add("fp32 master shards", masters_);
    add("shards in the compute type", copies_);
    return list;
}

Traffic DeviceStore::traffic() const {
    Traffic sum = traffic_;
    for (comm::StreamCommunicator* ranks : {&means_.mesh.shard_group(), &means_.mesh.replicas()}) {
        sum.lane_received += ranks->bytes_received();
    }
    return sum;
}

std::string DeviceStore::describe() const {
    return fmt::format("device: {} slots for {} units on {}", parameter_slots_.slots.size(),
                       layout_.units.size(), means_.device.describe());
}

}  // namespace fullshard::shard
