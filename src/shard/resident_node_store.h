// All ranks of the shard group on one node: the unsharded parameters live there once, for good.
#pragma once

#include "shard/arena_store.h"

#include <optional>

namespace fullshard::shard {

/// Unsharding is a fence: nothing is gathered, copied or refilled. In fp32 each rank's master shard
/// is a slice of the node's unsharded parameters; narrower ones are written from the master shard
/// when it is published.
class ResidentNodeStore final : public ArenaStore {
  public:
    /// Throws LogicError when the shard group spans nodes. Collective.
    ResidentNodeStore(const Layout& layout, const Schedule& schedule, const comm::Mesh& mesh,
                      const StoreOptions& options);

    TypedSpan unsharded(std::int64_t unit) override;
    void prefetch(std::int64_t) override {}  // nothing to start: publishing made the unit readable
    TypedSpan master(std::int64_t unit) override;
    void begin_update(std::int64_t unit) override;
    void publish(std::int64_t unit) override;
    std::vector<Allocation> allocations() const override;
    std::string describe() const override;

  private:
    /// Rounds of synchronisation on a unit, and what its strategy would hold of it elsewhere.
    struct UnitState {
        std::uint64_t publications = 0;
        std::uint64_t releases = 0;
        std::int64_t leases = 0;
        Reshard held = Reshard::kFully;  ///< what the last use left, for the count of gathers
    };

    void acquire(std::int64_t unit) override;
    void release(const UnitUse& use) override;
    UnitState& state(std::int64_t unit) { return states_[static_cast<std::size_t>(unit)]; }
    std::int64_t published_channel(std::int64_t unit) const { return 2 * unit; }
    std::int64_t released_channel(std::int64_t unit) const { return 2 * unit + 1; }

    std::vector<std::int64_t> offsets_;    ///< by unit, in the arena's parameters
    std::vector<UnitState> states_;        ///< by unit
    std::optional<MasterShards> masters_;  ///< where the compute type is not fp32
};

}  // namespace fullshard::shard
