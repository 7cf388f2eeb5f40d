// Collectives that a device runs in the order of its streams: the seam between sharding on devices
// and NCCL.
#pragma once

#include "base/span.h"
#include "comm/group.h"
#include "comm/ledger.h"
#include "comm/progress.h"
#include "device/device.h"

#include <cstdint>
#include <utility>

namespace fullshard::comm {

/// Collectives over a fixed, ordered set of ranks, enqueued on streams of one device: a call
/// returns before its memory is ready, and an event recorded behind it says when it is. Every rank
/// makes the same calls in the same order with equal counts and types, over all communicators of a
/// mesh and all streams. Counts are elements and may be zero. Memory is the device's. Gathers and
/// broadcasts move any type, sums are of fp32, bf16 and fp16; the order of summation is the back
/// end's, scaling is the caller's. What breaks these rules is a LogicError on the rank that does,
/// all other errors are CommunicationError.
class StreamCommunicator {
  public:
    virtual ~StreamCommunicator() = default;
    StreamCommunicator(const StreamCommunicator&) = delete;
    StreamCommunicator& operator=(const StreamCommunicator&) = delete;

    int rank() const { return group_.rank(); }
    int size() const { return group_.size(); }

    /// In place: block `rank()` is read, all others are written. The blocks are adjacent.
    void all_gather(const RankBlocks& blocks, device::Stream& stream);

    /// Sums block `rank()` of every rank's `blocks` into `out`: block_count elements of the blocks'
    /// type. `out` may be that very block; any other overlap is forbidden. The blocks are adjacent.
    void reduce_scatter(const RankBlocks& blocks, TypedSpan out, device::Stream& stream);

    /// In place sum over all ranks.
    void all_reduce(TypedSpan values, device::Stream& stream);

    /// Rank `root`'s values on every rank.
    void broadcast(TypedSpan values, int root, device::Stream& stream);

    /// Payload bytes that this rank receives from others in the calls so far, an all_reduce counted
    /// as a reduce_scatter and an all_gather: a closed form, whatever way the bytes take.
    std::int64_t bytes_received() const { return bytes_received_; }

  protected:
    StreamCommunicator(Group group, DeviceKind memory)
        : group_(std::move(group)), memory_(memory) {}

    const Group& group() const { return group_; }

  private:
    // What the public calls do once their arguments are known to be right. `call` is what the
    // ledger is told.
    virtual void enqueue_all_gather(const Call& call, const RankBlocks& blocks,
                                    device::Stream& stream) = 0;
    virtual void enqueue_reduce_scatter(const Call& call, const RankBlocks& blocks, TypedSpan out,
                                        device::Stream& stream) = 0;
    virtual void enqueue_all_reduce(const Call& call, TypedSpan values, device::Stream& stream) = 0;
    virtual void enqueue_broadcast(const Call& call, TypedSpan values, device::Stream& stream) = 0;
    void check_blocks(const RankBlocks& blocks) const;

    Group group_;
    DeviceKind memory_;
    std::int64_t bytes_received_ = 0;
};

/// The collective that a mesh enqueued last: what a wait that takes long is told to be for.
struct LatestCall {
    std::int64_t track = -1;    ///< in the ledger
    std::int64_t sequence = 0;  ///< of the call in its track
    Call call{.kind = "the device"};
};

/// The communicators of one rank: its shard group, and its replicas (the ranks that hold the same
/// shard, one of each group). They fail together and end together.
class StreamMesh {
  public:
    virtual ~StreamMesh() = default;
    StreamMesh(const StreamMesh&) = delete;
    StreamMesh& operator=(const StreamMesh&) = delete;

    virtual StreamCommunicator& shard_group() = 0;
    virtual StreamCommunicator& replicas() = 0;

    /// Throws CommunicationError when a collective that was enqueued has failed since. Cheap and
    /// not collective: to be called where the host waits and once a step.
    virtual void check() = 0;

    /// Ends what is under way on this rank; afterwards no call but the destructor is legal. Every
    /// rank must do so when one has failed, and before it frees memory of the device: that would
    /// wait for collectives that never end. False where the library did not let go in time: then
    /// such memory must not be freed and the process must leave by MpiSession::abort. Not
    /// collective.
    virtual bool abort() noexcept = 0;

    /// The orderly end, after the streams are done: afterwards no call but the destructor is legal.
    /// Collective. A mesh that is not closed is aborted by its destructor.
    virtual void close() = 0;

    /// The host waits for `event` of the device, which collectives of this mesh lead to, no longer
    /// than the deadline of `world`; meanwhile MPI advances and errors are looked for. Throws
    /// CommunicationError, which is a TimeoutError where the event is late.
    void wait(device::Device& device, const device::Event& event);

  protected:
    /// `world`: all ranks of the mesh. The Progress must outlive it.
    StreamMesh(Group world, Progress& progress) : world_(std::move(world)), progress_(progress) {}

    const Group& world() const { return world_; }
    Progress& progress() { return progress_; }
    /// Communicators of the mesh note their calls here.
    LatestCall& latest() { return latest_; }

  private:
    Group world_;
    Progress& progress_;
    LatestCall latest_;
};

}  // namespace fullshard::comm
