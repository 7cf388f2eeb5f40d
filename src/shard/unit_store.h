// The seam between training and sharding: who holds parameters and gradients, and when.
#pragma once

#include "base/grad_sink.h"
#include "comm/progress_thread.h"
#include "shard/schedule.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::shard {

class UnitStore;

/// The right to read a unit's unsharded parameters; ends with the object (`reshard`, as the use
/// says).
class Lease {
  public:
    Lease() = default;
    Lease(UnitStore& store, const UnitUse& use) : store_(&store), use_(use) {}
    Lease(Lease&& other) noexcept
        : store_(std::exchange(other.store_, nullptr)), use_(other.use_) {}
    Lease& operator=(Lease&& other);
    ~Lease();

    /// Ends the lease now.
    void release();

  private:
    UnitStore* store_ = nullptr;
    UnitUse use_;
};

/// An item of memory that a store has allocated or a plan predicts, in bytes.
struct Allocation {
    std::string purpose;
    std::int64_t bytes = 0;
    bool node_shared = false;  ///< exists once a node, mapped by all its ranks

    friend bool operator==(const Allocation&, const Allocation&) = default;
};

/// What this rank's store has moved so far, in bytes.
struct Traffic {
    std::int64_t gathered = 0;  ///< logical: (W-1)/W of the flat parameter when it is unsharded
    /// Logical: (W-1)/W of the flat parameter at each reduction over a shard group of W ranks,
    /// twice (R-1)/R of a shard at each all-reduce over R replicas.
    std::int64_t reduced = 0;
    std::int64_t node_local_read = 0;  ///< gradients read from other ranks of the node
    std::int64_t lane_received = 0;    ///< in messages: from other nodes, replicas, or ranks
    std::int64_t copied = 0;           ///< copied on this rank only to make sharding work

    friend bool operator==(const Traffic&, const Traffic&) = default;
    Traffic& operator+=(const Traffic& other);
    friend Traffic operator-(const Traffic& a, const Traffic& b);
};

/// Test-only disturbances; all zero in a real run.
struct Faults {
    std::int64_t max_delay_us =
        0;                ///< each rank sleeps a random time up to this before it synchronises
    bool poison = false;  ///< slots are filled with NaN between uses
    std::uint64_t seed = 0;
};

/// Owns shard, slot and gradient memory of all units. All ranks of the shard group make the same
/// calls in the same order, except that `prefetch` is advice. Calls may wait for peers and then
/// throw CommunicationError at the deadline. Within a step:
///
///   per micro-batch   unshard / prefetch / release in both passes as the schedule says; in
///                     backward once for each trainable unit `begin_gradients`, fill the sink,
///                     `reduce`
///   then              `finish_reductions`, and for each unit read `gradient`,
///                     `begin_update`, change the master shard, `publish`
class UnitStore {
  public:
    virtual ~UnitStore() = default;

    /// Where the unit's flat parameter appears when it is unsharded, in the compute type: the same
    /// memory for the life of the store, its content valid only under a lease. Padded length.
    virtual TypedSpan unsharded(std::int64_t unit) = 0;

    /// Starts the unshard of a unit that will be leased soon, if its memory is free already.
    virtual void prefetch(std::int64_t unit) = 0;
    /// Returns when the whole flat parameter can be read at `unsharded(unit)`.
    /// A unit may be leased several times at once.
    Lease unshard(const UnitUse& use);

    /// Where the unit's gradients go; the same object for the life of the store. It may be written
    /// between `begin_gradients` and `reduce` of a micro-batch; what is not written is zero. Its
    /// memory has the compute type, or fp32 where a step's micro-batches are added in it.
    virtual GradSink& grad_sink(std::int64_t unit) = 0;
    virtual void begin_gradients(std::int64_t unit) = 0;
    /// Starts summing this micro-batch's gradient over the ranks.
    virtual void reduce(std::int64_t unit) = 0;
    /// While the result lives, the rank computes: it makes no call of the store but to sinks, and
    /// none of MPI. What is under way between ranks may go on meanwhile.
    virtual comm::ProgressThread::Computing computing() { return {}; }
    /// Returns when every started reduction is complete and the micro-batches are summed.
    virtual void finish_reductions() = 0;

    /// First element, within the flat parameter, of the range this rank updates.
    virtual std::int64_t owned_begin(std::int64_t unit) const = 0;
    /// Sum of the step's gradients over the owned range, fp32; valid after `finish_reductions`
    /// until the next `begin_gradients`. In the store's memory, as everything here: the host's, or
    /// a device's.
    virtual TypedSpan gradient(std::int64_t unit) const = 0;
    /// fp32 master parameters of the owned range. Reading is always allowed, writing only between
    /// `begin_update`, which waits for readers of the old values, and `publish`, which shows the
    /// new.
    virtual TypedSpan master(std::int64_t unit) = 0;
    /// Where whoever updates the owned range also puts it in the compute type, in the same pass and
    /// before `publish`. Empty: nowhere, the store sees to it.
    virtual TypedSpan updated_copy(std::int64_t /*unit*/) { return {}; }
    /// Copies the master parameters of the owned range to the host and back; the latter between
    /// `begin_update` and `publish`.
    virtual void read_master(std::int64_t unit, std::span<float> values);
    virtual void set_master(std::int64_t unit, std::span<const float> values);
    virtual void begin_update(std::int64_t unit) = 0;
    virtual void publish(std::int64_t unit) = 0;

    /// What the store has allocated, item by item, for the comparison with the plan.
    virtual std::vector<Allocation> allocations() const = 0;
    virtual Traffic traffic() const = 0;
    /// "resident", "slotted" or "private", with what that means here, for the banner.
    virtual std::string describe() const = 0;

  protected:
    friend class Lease;
    virtual void acquire(std::int64_t unit) = 0;
    virtual void release(const UnitUse& use) = 0;
};

}  // namespace fullshard::shard
