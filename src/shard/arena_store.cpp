#include "shard/arena_store.h"

#include "comm/mpi_communicator.h"

namespace fullshard::shard {

namespace {

std::span<float> floats(const comm::NodeArena& arena, std::int64_t begin, std::int64_t count) {
    return {reinterpret_cast<float*>(arena.memory().data()) + begin,
            static_cast<std::size_t>(count)};
}

std::unique_ptr<comm::Communicator> make_lane(const comm::NodeLanes& lanes) {
    if (lanes.lane.size() == 1) return nullptr;
    return std::make_unique<comm::MpiCommunicator>(lanes.lane);
}

}  // namespace

ArenaStore::ArenaStore(const Layout& layout, const comm::NodeLanes& lanes,
                       const StoreOptions& options, std::int64_t parameter_numel,
                       std::int64_t parameter_channels)
    : layout_(layout),
      gradient_slots_(make_slot_plan(layout, options.gradient_slots)),
      place_(place_of(lanes)),
      disturbance_(options.faults, static_cast<int>(place_.shard())),
      arena_(lanes.node, 4 * (parameter_numel + GradReducer::arena_numel(gradient_slots_, place_)),
             parameter_channels + GradReducer::channels(gradient_slots_)),
      parameters_(floats(arena_, 0, parameter_numel)),
      lane_(make_lane(lanes)),
      reducer_(layout_, gradient_slots_, place_, options.micro_batches, arena_,
               floats(arena_, parameter_numel, GradReducer::arena_numel(gradient_slots_, place_)),
               parameter_channels, lane_.get(), disturbance_) {}

std::int64_t ArenaStore::owned_begin(std::int64_t unit_index) const {
    return place_.shard() * unit(unit_index).shard_numel();
}

std::span<float> ArenaStore::shard_of(std::span<float> flat, std::int64_t unit_index) const {
    return flat.subspan(static_cast<std::size_t>(owned_begin(unit_index)),
                        static_cast<std::size_t>(unit(unit_index).shard_numel()));
}

void ArenaStore::count_gather(std::int64_t unit_index) {
    parameter_traffic_.gathered +=
        unit(unit_index).padded() * 4 * (place_.shards() - 1) / place_.shards();
}

Traffic ArenaStore::traffic() const {
    Traffic sum = parameter_traffic_;
    sum += reducer_.traffic();
    if (lane_) sum.lane_received = lane_->bytes_received();
    return sum;
}

std::vector<Allocation> ArenaStore::allocations() const {
    const bool shared = place_.node_size > 1;
    std::vector<Allocation> list = reducer_.allocations();
    list.push_back(
        {"gradient slots", 4 * GradReducer::arena_numel(gradient_slots_, place_), shared});
    list.push_back({"arena counters", arena_.counter_bytes(), shared});
    return list;
}

}  // namespace fullshard::shard
