// Bulk collectives on typed spans: the seam between sharding and MPI, NCCL, or what comes.
#pragma once

#include "base/span.h"

#include <cstdint>
#include <utility>

namespace fullshard::comm {

class Communicator;

/// A collective in flight. The memory it was given must stay untouched until `wait()` returned, and
/// it must be waited for exactly once (moved-from handles and default ones are not in flight).
class Handle {
  public:
    Handle() = default;
    Handle(Communicator& communicator, std::int64_t operation)
        : communicator_(&communicator), operation_(operation) {}
    Handle(Handle&& other) noexcept
        : communicator_(std::exchange(other.communicator_, nullptr)),
          operation_(other.operation_) {}
    Handle& operator=(Handle&& other) noexcept {
        communicator_ = std::exchange(other.communicator_, nullptr);
        operation_ = other.operation_;
        return *this;
    }

    bool in_flight() const { return communicator_ != nullptr; }
    /// Lets the operation advance; whether `wait` would return without waiting for peers.
    bool ready();
    /// Blocks until this rank's part is done and its result readable. No effect if not in flight.
    void wait();

  private:
    Communicator* communicator_ = nullptr;
    std::int64_t operation_ = 0;
};

/// Collectives over a fixed, ordered set of ranks. Every rank calls the same ones with equal counts
/// and types; collectives that may be in flight together use different channels (small
/// non-negative numbers), those on one channel are matched in the order of their calls. Counts are
/// elements, 64 bits, and may be zero. Gathers and broadcasts move any type, sums are of fp32, bf16
/// and fp16 (else LogicError). Errors are CommunicationError, also when a peer is late.
class Communicator {
  public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;

    /// In place: on entry block `rank()` is valid, after the wait all blocks are.
    virtual Handle all_gather(const RankBlocks& blocks, int channel) = 0;

    /// Sums block `rank()` of every rank's `blocks` into `out` (block_count elements), in the
    /// balanced-tree order over ranks. `out` may have another floating-point type than the blocks:
    /// each value and each addition is rounded to out's (kernels::tree_sum), so that bf16 blocks
    /// are summed in fp32 where `out` is fp32. `scratch` holds (size() - 1) blocks, of the blocks'
    /// type, for back ends that receive before they sum. `out` may not overlap the others.
    virtual Handle reduce_scatter(const RankBlocks& blocks, TypedSpan out, TypedSpan scratch,
                                  int channel) = 0;

    /// In place sum over all ranks, in the balanced-tree order; each addition is rounded to the
    /// type of the values. `scratch` holds (size() - 1) * ceil(values.count / size()) elements of
    /// that type.
    virtual Handle all_reduce(TypedSpan values, TypedSpan scratch, int channel) = 0;

    /// Rank `root`'s values on every rank.
    virtual Handle broadcast(TypedSpan values, int root, int channel) = 0;

    /// Payload bytes that this rank received from others so far.
    virtual std::int64_t bytes_received() const = 0;

  protected:
    friend class Handle;
    virtual bool ready(std::int64_t operation) = 0;
    virtual void wait(std::int64_t operation) = 0;
};

inline bool Handle::ready() {
    return communicator_ == nullptr || communicator_->ready(operation_);
}

inline void Handle::wait() {
    if (communicator_ != nullptr) std::exchange(communicator_, nullptr)->wait(operation_);
}

}  // namespace fullshard::comm
