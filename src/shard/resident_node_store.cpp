#include "shard/resident_node_store.h"

#include "base/error.h"

namespace fullshard::shard {

ResidentNodeStore::ResidentNodeStore(const Layout& layout, const comm::NodeLanes& lanes,
                                     const StoreOptions& options)
    : ArenaStore(layout, lanes, options, layout.padded(),
                 2 * static_cast<std::int64_t>(layout.units.size())),
      publications_(layout.units.size()),
      releases_(layout.units.size()) {
    ensure(place().lane_size == 1, "resident parameters need all ranks on one node");
    std::int64_t offset = 0;
    for (const Unit& each : layout.units) {
        offsets_.push_back(offset);
        offset += each.padded();
    }
}

std::span<float> ResidentNodeStore::unsharded(std::int64_t index) {
    return parameter_memory().subspan(
        static_cast<std::size_t>(offsets_[static_cast<std::size_t>(index)]),
        static_cast<std::size_t>(unit(index).padded()));
}

void ResidentNodeStore::acquire(std::int64_t index) {
    disturbance().delay();
    arena().wait(published_channel(index), publications_[static_cast<std::size_t>(index)],
                 [this, index] { return "the updated parameters of " + unit(index).name(); });
    count_gather(index);
}

void ResidentNodeStore::release(std::int64_t index) {
    ++releases_[static_cast<std::size_t>(index)];
    arena().post(released_channel(index));
}

void ResidentNodeStore::begin_update(std::int64_t index) {
    arena().wait(released_channel(index), releases_[static_cast<std::size_t>(index)],
                 [this, index] { return "the last readers of " + unit(index).name(); });
    disturbance().delay();
}

void ResidentNodeStore::publish(std::int64_t index) {
    ++publications_[static_cast<std::size_t>(index)];
    arena().post(published_channel(index));
}

std::vector<Allocation> ResidentNodeStore::allocations() const {
    auto list = ArenaStore::allocations();
    list.push_back({"unsharded parameters (master shards are slices)", 4 * layout().padded(),
                    place().node_size > 1});
    return list;
}

std::string ResidentNodeStore::describe() const {
    return "resident: unsharded parameters once on the node, each shard a slice of them";
}

}  // namespace fullshard::shard
