#include "shard/private_store.h"

#include "comm/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::shard {

PrivateStore::PrivateStore(const Layout& layout, const comm::Group& replicas,
                           const StoreOptions& options)
    : layout_(layout),
      replicas_(std::make_unique<comm::MpiCommunicator>(replicas)),
      disturbance_(options.faults, replicas.rank()),
      parameters_(layout.padded()),
      accumulator_memory_(TreeAccumulator::levels_for(options.micro_batches) * layout.padded()) {
    const std::int64_t levels = TreeAccumulator::levels_for(options.micro_batches);
    std::span<float> rest = accumulator_memory_.span();
    std::size_t offset = 0;
    std::int64_t largest = 0;
    for (const Unit& unit : layout.units) {
        offsets_.push_back(offset);
        offset += static_cast<std::size_t>(unit.padded());
        sinks_.emplace_back(unit);
        const auto numel = static_cast<std::size_t>(levels * unit.padded());
        accumulators_.emplace_back(rest.first(numel), levels);
        rest = rest.subspan(numel);
        largest = std::max(largest, unit.padded());
    }
    const std::int64_t ranks = replicas.size();
    scratch_.resize(static_cast<std::size_t>((ranks - 1) * ((largest + ranks - 1) / ranks)));
}

std::span<float> PrivateStore::unsharded(std::int64_t unit) {
    const auto index = static_cast<std::size_t>(unit);
    return parameters_.span().subspan(offsets_[index],
                                      static_cast<std::size_t>(layout_.units[index].padded()));
}

void PrivateStore::begin_gradients(std::int64_t unit) {
    const auto index = static_cast<std::size_t>(unit);
    const std::span<float> target = accumulators_[index].target();
    disturbance_.poison(target);
    sinks_[index].begin(target);
}

void PrivateStore::reduce(std::int64_t unit) {
    const auto index = static_cast<std::size_t>(unit);
    sinks_[index].seal();
    disturbance_.delay();
    const std::span<float> gradient = accumulators_[index].target();
    replicas_->all_reduce(gradient, std::span(scratch_), /*channel=*/0).wait();
    accumulators_[index].commit();
    const std::int64_t ranks = replicas_->size();
    traffic_.reduced += 2 * layout_.units[index].padded() * 4 * (ranks - 1) / ranks;
    traffic_.lane_received = replicas_->bytes_received();
}

void PrivateStore::finish_reductions() {
    for (std::size_t i = 0; i < accumulators_.size(); ++i) {
        if (!layout_.units[i].trainable()) continue;
        accumulators_[i].finish();
        accumulators_[i].reset();
    }
}

std::span<const float> PrivateStore::gradient(std::int64_t unit) const {
    return accumulators_[static_cast<std::size_t>(unit)].result();
}

std::vector<Allocation> PrivateStore::allocations() const {
    return {{"private parameters", parameters_.bytes()},
            {"gradients (tree over micro-batches)", accumulator_memory_.bytes()},
            {"all-reduce receive buffers", 4 * static_cast<std::int64_t>(scratch_.size())}};
}

std::string PrivateStore::describe() const {
    return fmt::format("private: {} whole replica{}", replicas_->size(),
                       replicas_->size() == 1 ? "" : "s");
}

}  // namespace fullshard::shard
