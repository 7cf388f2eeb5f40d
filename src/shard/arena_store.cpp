#include "shard/arena_store.h"

#include "comm/mpi_communicator.h"

namespace fullshard::shard {

namespace {

/// `count` elements from `byte_offset` on.
TypedSpan elements(const comm::NodeArena& arena, std::int64_t byte_offset, std::int64_t count,
                   DType dtype) {
    TypedSpan span;
    span.data = arena.memory().data() + byte_offset;
    span.count = count;
    span.dtype = dtype;
    return span;
}

std::unique_ptr<comm::Communicator> make_communicator(const comm::Group& group,
                                                      comm::Progress& progress,
                                                      const Layout& layout) {
    if (group.size() == 1) return nullptr;
    return std::make_unique<comm::MpiCommunicator>(group, progress, channel_names(layout));
}

}  // namespace

ArenaStore::ArenaStore(const Layout& layout, const Schedule& schedule, const comm::Mesh& mesh,
                       const StoreOptions& options, std::int64_t parameter_numel,
                       std::int64_t parameter_channels)
    : layout_(layout),
      options_(options),
      gradient_slots_(plan_gradient_slots(layout, schedule, options)),
      place_(place_of(mesh)),
      disturbance_(options.faults,
                   static_cast<int>(place_.replica * place_.shards() + place_.shard())),
      arena_(mesh.lanes.node,
             parameter_numel * size_of(options.compute) +
                 GradReducer::arena_numel(gradient_slots_, place_, options) *
                     size_of(options.gradient()),
             parameter_channels + GradReducer::channels(gradient_slots_), progress_),
      parameters_(elements(arena_, 0, parameter_numel, options.compute)),
      lane_(make_communicator(mesh.lanes.lane, progress_, layout)),
      replicas_(make_communicator(mesh.replicas, progress_, layout)),
      reducer_(
          layout_, gradient_slots_, place_, options, arena_,
          elements(arena_, parameters_.bytes(),
                   GradReducer::arena_numel(gradient_slots_, place_, options), options.gradient()),
          parameter_channels, {lane_.get(), replicas_.get()}, disturbance_) {
    if (!options.progress_thread) return;
    thread_.emplace([this] {
        const bool messages = progress_.advance();
        return reducer_.advance() || messages;
    });
}

comm::ProgressThread::Computing ArenaStore::computing() {
    if (!thread_) return {};
    return comm::ProgressThread::Computing(*thread_);
}

std::int64_t ArenaStore::owned_begin(std::int64_t unit_index) const {
    return place_.shard() * unit(unit_index).shard_numel();
}

TypedSpan ArenaStore::shard_of(const TypedSpan& flat, std::int64_t unit_index) const {
    return flat.part(owned_begin(unit_index), unit(unit_index).shard_numel());
}

void ArenaStore::count_gather(std::int64_t unit_index, std::int64_t ranks) {
    parameter_traffic_.gathered +=
        unit(unit_index).padded() * size_of(options_.compute) * (ranks - 1) / ranks;
}

Traffic ArenaStore::traffic() const {
    Traffic sum = parameter_traffic_;
    sum += reducer_.traffic();
    for (const auto* peers : {lane_.get(), replicas_.get()}) {
        if (peers != nullptr) sum.lane_received += peers->bytes_received();
    }
    return sum;
}

std::vector<Allocation> ArenaStore::allocations() const {
    const bool shared = place_.node_size > 1;
    std::vector<Allocation> list = reducer_.allocations();
    list.push_back(
        {"gradient slots",
         GradReducer::arena_numel(gradient_slots_, place_, options_) * size_of(options_.gradient()),
         shared});
    list.push_back({"arena counters", arena_.counter_bytes(), shared});
    return list;
}

MasterShards::MasterShards(const Layout& layout) : offsets_{0} {
    for (const Unit& unit : layout.units) {
        offsets_.push_back(offsets_.back() + unit.shard_numel());
    }
    memory_ = AlignedBuffer(offsets_.back());
}

std::span<float> MasterShards::operator[](std::int64_t unit) const {
    const auto index = static_cast<std::size_t>(unit);
    return memory_.typed().part(offsets_[index], offsets_[index + 1] - offsets_[index]).as<float>();
}

}  // namespace fullshard::shard
