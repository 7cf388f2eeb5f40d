// A store of one unit, driven as a training step drives it.
#pragma once

#include "base/aligned_buffer.h"
#include "comm/topology.h"
#include "shard/schedule.h"
#include "shard/strategy.h"

#include <cstdint>
#include <memory>
#include <string>

namespace fullshard::micro {

/// fp32 parameters and gradients of `numel` elements in one unit. All calls are collective.
class OneUnit {
  public:
    struct Kind {
        std::string strategy = "full_shard";
        shard::StorePreference store = shard::StorePreference::kAuto;
        int ranks_per_node = 0;  ///< 0: all ranks that share memory are a node
    };
    OneUnit(const comm::Group& world, const Kind& kind, std::int64_t numel);
    /// Waits for the others: nobody frees memory that they still read.
    ~OneUnit();
    OneUnit(const OneUnit&) = delete;
    OneUnit& operator=(const OneUnit&) = delete;

    /// The masters have changed and all ranks read the unsharded unit: the end of a step and the
    /// first visit of the next one.
    void gather();
    /// The same with new values; throws RunError where another rank's are not seen.
    void check_gather();

    /// Every rank has computed its gradient: all until `reduce`.
    void prepare_reduce() { write_gradient(); }
    void reduce();
    /// With new gradients; throws RunError unless their sum is exact.
    void check_reduce();

    std::int64_t nodes() const { return place().lane_size; }
    std::string describe() const { return store_->describe(); }

  private:
    shard::Place place() const { return shard::place_of(mesh_); }
    void write_gradient();

    comm::Topology topology_;
    comm::Mesh mesh_;
    shard::Layout layout_;
    shard::Schedule schedule_;
    shard::StoreOptions options_;
    std::unique_ptr<shard::UnitStore> store_;
    AlignedBuffer gradient_;  ///< what this rank writes into the sink
    std::int64_t salt_ = 0;   ///< of the values that checks write
};

}  // namespace fullshard::micro
