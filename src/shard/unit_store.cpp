#include "shard/unit_store.h"

#include "base/error.h"

#include <algorithm>
#include <exception>

namespace fullshard::shard {

void UnitStore::read_master(std::int64_t unit, std::span<float> values) {
    const TypedSpan owned = master(unit);
    ensure(std::ssize(values) == owned.count, "there is room for the owned range");
    std::ranges::copy(owned.as<const float>(), values.begin());
}

void UnitStore::set_master(std::int64_t unit, std::span<const float> values) {
    const TypedSpan owned = master(unit);
    ensure(std::ssize(values) == owned.count, "values are those of the owned range");
    std::ranges::copy(values, owned.as<float>().begin());
}

Lease& Lease::operator=(Lease&& other) {
    if (this == &other) return *this;
    release();
    store_ = std::exchange(other.store_, nullptr);
    use_ = other.use_;
    return *this;
}

Lease::~Lease() {
    // While an error unwinds, releasing could wait for ranks that never come.
    if (std::uncaught_exceptions() == 0) release();
}

void Lease::release() {
    if (store_ != nullptr) std::exchange(store_, nullptr)->release(use_);
}

Lease UnitStore::unshard(const UnitUse& use) {
    acquire(use.unit);
    return {*this, use};
}

Traffic& Traffic::operator+=(const Traffic& other) {
    gathered += other.gathered;
    reduced += other.reduced;
    node_local_read += other.node_local_read;
    lane_received += other.lane_received;
    copied += other.copied;
    return *this;
}

Traffic operator-(const Traffic& a, const Traffic& b) {
    return {a.gathered - b.gathered, a.reduced - b.reduced, a.node_local_read - b.node_local_read,
            a.lane_received - b.lane_received, a.copied - b.copied};
}

}  // namespace fullshard::shard
