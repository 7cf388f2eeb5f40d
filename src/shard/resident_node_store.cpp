#include "shard/resident_node_store.h"

#include "base/error.h"
#include "kernels/cast.h"

namespace fullshard::shard {

ResidentNodeStore::ResidentNodeStore(const Layout& layout, const Schedule& schedule,
                                     const comm::Mesh& mesh, const StoreOptions& options)
    : ArenaStore(layout, schedule, mesh, options, layout.padded(),
                 2 * static_cast<std::int64_t>(layout.units.size())),
      states_(layout.units.size()) {
    ensure(place().lane_size == 1, "resident parameters need all ranks on one node");
    if (options.compute != DType::kFloat32) masters_.emplace(layout);
    std::int64_t offset = 0;
    for (const Unit& each : layout.units) {
        offsets_.push_back(offset);
        offset += each.padded();
    }
}

TypedSpan ResidentNodeStore::unsharded(std::int64_t index) {
    return parameter_memory().part(offsets_[static_cast<std::size_t>(index)], unit(index).padded());
}

TypedSpan ResidentNodeStore::master(std::int64_t index) {
    if (masters_) return (*masters_)[index];
    return shard_of(unsharded(index), index);
}

void ResidentNodeStore::acquire(std::int64_t index) {
    UnitState& unit_state = state(index);
    if (unit_state.leases++ > 0) return;
    disturbance().delay();
    arena().wait(published_channel(index), unit_state.publications,
                 [this, index] { return "the updated parameters of " + unit(index).name(); });
    if (unit_state.held == Reshard::kFully) count_gather(index, place().shards());
    if (unit_state.held == Reshard::kToGroup) count_gather(index, options().regather_ranks);
}

void ResidentNodeStore::release(const UnitUse& use) {
    UnitState& unit_state = state(use.unit);
    if (--unit_state.leases > 0) return;
    unit_state.held = use.after;
    ++unit_state.releases;
    arena().post(released_channel(use.unit));
}

void ResidentNodeStore::begin_update(std::int64_t index) {
    state(index).held = Reshard::kFully;
    arena().wait(released_channel(index), state(index).releases,
                 [this, index] { return "the last readers of " + unit(index).name(); });
    disturbance().delay();
}

void ResidentNodeStore::publish(std::int64_t index) {
    if (masters_) kernels::narrow(master(index).as<float>(), shard_of(unsharded(index), index));
    ++state(index).publications;
    arena().post(published_channel(index));
}

std::vector<Allocation> ResidentNodeStore::allocations() const {
    auto list = ArenaStore::allocations();
    const bool shared = place().node_size > 1;
    const std::int64_t flat = layout().padded() * size_of(options().compute);
    if (masters_) {
        list.push_back({"unsharded parameters", flat, shared});
        list.push_back({"fp32 master shards", masters_->bytes()});
    } else {
        list.push_back({"unsharded parameters (master shards are slices)", flat, shared});
    }
    return list;
}

std::string ResidentNodeStore::describe() const {
    return masters_ ? "resident: unsharded parameters once on the node, written from fp32 shards"
                    : "resident: unsharded parameters once on the node, each shard a slice of them";
}

}  // namespace fullshard::shard
