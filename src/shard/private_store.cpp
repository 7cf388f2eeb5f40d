#include "shard/private_store.h"

#include "comm/mpi_communicator.h"
#include "kernels/cast.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::shard {

PrivateStore::PrivateStore(const Layout& layout, const Schedule& schedule,
                           const comm::Group& replicas, const StoreOptions& options)
    : layout_(layout),
      options_(options),
      replicas_(std::make_unique<comm::MpiCommunicator>(
          replicas, progress_, [](int) { return std::string("gradient reduction"); })),
      disturbance_(options.faults, replicas.rank()),
      contributions_(reductions_a_step(options)),
      masters_(layout.padded()),
      gradient_slots_(plan_gradient_slots(layout, schedule, options)),
      begun_(layout.units.size()) {
    if (options.compute != DType::kFloat32) {
        compute_ = AlignedBuffer(layout.padded(), options.compute);
    }
    if (options.gradient() != DType::kFloat32) {
        gradient_memory_ = AlignedBuffer(gradient_slots_.numel(), options.gradient());
    }
    const std::int64_t levels = TreeAccumulator::levels_for(contributions_, options.order);
    std::int64_t offset = 0, trainable = 0, largest = 0;
    for (const Unit& each : layout.units) {
        offsets_.push_back(offset);
        offset += each.padded();
        sinks_.emplace_back(each);
        if (!each.trainable()) continue;
        trainable += each.padded();
        largest = std::max(largest, each.padded());
    }
    accumulator_memory_ = AlignedBuffer(levels * trainable);
    std::span<float> rest = accumulator_memory_.span();
    for (const Unit& each : layout.units) {
        const auto numel = static_cast<std::size_t>(each.trainable() ? levels * each.padded() : 0);
        accumulators_.emplace_back(rest.first(numel), levels, options.order);
        rest = rest.subspan(numel);
    }
    const std::int64_t ranks = replicas.size();
    scratch_ = AlignedBuffer((ranks - 1) * ((largest + ranks - 1) / ranks), options.reduce);
    if (options.reduce != DType::kFloat32) rounded_ = AlignedBuffer(largest, options.reduce);
}

TypedSpan PrivateStore::unsharded(std::int64_t index) {
    return (compute_.empty() ? masters_ : compute_)
        .typed()
        .part(offsets_[static_cast<std::size_t>(index)], unit(index).padded());
}

TypedSpan PrivateStore::master(std::int64_t index) {
    return masters_.typed().part(offsets_[static_cast<std::size_t>(index)], unit(index).padded());
}

void PrivateStore::publish(std::int64_t index) {
    if (!compute_.empty()) kernels::narrow(master(index).as<float>(), unsharded(index));
}

void PrivateStore::begin_gradients(std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const bool first = begun_[i]++ == 0;
    if (options_.accumulation == Accumulation::kUnsharded && !first) {
        sinks_[i].resume();
        return;
    }
    TypedSpan memory(accumulators_[i].target());
    if (!gradient_memory_.empty()) {
        const SlotPlan::Slot& slot = gradient_slots_.slot(i);
        memory = gradient_memory_.typed().part(slot.offset, slot.numel);
    }
    disturbance_.poison(memory);
    sinks_[i].begin(memory);
}

void PrivateStore::reduce(std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const bool last = begun_[i] == options_.micro_batches;
    if (options_.accumulation == Accumulation::kUnsharded && !last) {
        sinks_[i].pause();
        return;
    }
    sinks_[i].seal(zero);
    disturbance_.delay();
    TreeAccumulator& sum = accumulators_[i];
    if (!gradient_memory_.empty()) {
        const SlotPlan::Slot& slot = gradient_slots_.slot(i);
        kernels::widen(gradient_memory_.typed().part(slot.offset, slot.numel), sum.target());
    }
    if (options_.order == SumOrder::kTree) all_reduce(index, sum.target());
    sum.commit();
    if (!last) return;
    sum.finish();
    if (options_.order == SumOrder::kFast) all_reduce(index, sum.result());
}

void PrivateStore::all_reduce(std::int64_t index, std::span<float> gradient) {
    const TypedSpan whole(gradient);
    TypedSpan values = whole;
    if (options_.reduce != DType::kFloat32) {
        values = rounded_.typed().part(0, whole.count);
        kernels::convert(whole, values);
    }
    replicas_->all_reduce(values, scratch_.typed(), /*channel=*/0).wait();
    if (options_.reduce != DType::kFloat32) kernels::convert(values, whole);
    const std::int64_t ranks = replicas_->size();
    traffic_.reduced += 2 * unit(index).padded() * size_of(options_.reduce) * (ranks - 1) / ranks;
    traffic_.lane_received = replicas_->bytes_received();
}

void PrivateStore::finish_reductions() {
    for (std::size_t i = 0; i < accumulators_.size(); ++i) {
        if (!layout_.units[i].trainable()) continue;
        accumulators_[i].reset();
        begun_[i] = 0;
    }
}

TypedSpan PrivateStore::gradient(std::int64_t index) const {
    return accumulators_[static_cast<std::size_t>(index)].result();
}

std::vector<Allocation> PrivateStore::allocations() const {
    std::vector<Allocation> list;
    const auto add = [&](const char* purpose, const AlignedBuffer& memory) {
        if (!memory.empty()) list.push_back({purpose, memory.bytes()});
    };
    add("private fp32 parameters", masters_);
    add("parameters in the compute type", compute_);
    add("gradient slots", gradient_memory_);
    add("gradients (sums over micro-batches)", accumulator_memory_);
    add("all-reduce receive buffers", scratch_);
    add("gradient in the reduce type", rounded_);
    return list;
}

std::string PrivateStore::describe() const {
    return fmt::format("private: {} whole replica{}", replicas_->size(),
                       replicas_->size() == 1 ? "" : "s");
}

}  // namespace fullshard::shard
