// All ranks of the shard group on one node: the unsharded parameters live there once, for good.
#pragma once

#include "shard/arena_store.h"

namespace fullshard::shard {

/// Each rank's fp32 master shard is a slice of the node's unsharded parameters. Unsharding is a
/// fence: nothing is gathered, copied or refilled.
class ResidentNodeStore final : public ArenaStore {
  public:
    /// Throws LogicError when the lanes span nodes. Collective.
    ResidentNodeStore(const Layout& layout, const comm::NodeLanes& lanes,
                      const StoreOptions& options);

    std::span<float> unsharded(std::int64_t unit) override;
    void prefetch(std::int64_t) override {}  // nothing to start: publishing made the unit readable
    std::span<float> master(std::int64_t unit) override { return shard_of(unsharded(unit), unit); }
    void begin_update(std::int64_t unit) override;
    void publish(std::int64_t unit) override;
    std::vector<Allocation> allocations() const override;
    std::string describe() const override;

  private:
    void acquire(std::int64_t unit) override;
    void release(std::int64_t unit) override;
    std::int64_t published_channel(std::int64_t unit) const { return 2 * unit; }
    std::int64_t released_channel(std::int64_t unit) const { return 2 * unit + 1; }

    std::vector<std::int64_t> offsets_;        ///< by unit, in the arena's parameters
    std::vector<std::uint64_t> publications_;  ///< by unit
    std::vector<std::uint64_t> releases_;      ///< by unit
};

}  // namespace fullshard::shard
