// StreamCommunicator on host devices over MPI: what tests run, without a GPU, in NCCL's place.
#pragma once

#include "comm/group.h"
#include "comm/mpi_communicator.h"
#include "comm/progress.h"
#include "comm/stream_communicator.h"

#include <cstdint>
#include <functional>

namespace fullshard::comm {

/// Collectives of MpiCommunicator as polled operations of a host device. Sums are in its
/// balanced-tree order: a store on a device then has the bits of a store on the host.
class MpiStreamCommunicator final : public StreamCommunicator {
  public:
    /// No other MpiCommunicator may use the group. `latest` must outlive it.
    MpiStreamCommunicator(const Group& group, Progress& progress, LatestCall& latest);

    /// Enqueued and not done.
    std::int64_t in_flight() const { return in_flight_; }

  private:
    class Collective;
    using Post = std::function<Handle(int channel, TypedSpan scratch)>;

    void enqueue_all_gather(const Call& call, const RankBlocks& blocks,
                            device::Stream& stream) override;
    void enqueue_reduce_scatter(const Call& call, const RankBlocks& blocks, TypedSpan out,
                                device::Stream& stream) override;
    void enqueue_all_reduce(const Call& call, TypedSpan values, device::Stream& stream) override;
    void enqueue_broadcast(const Call& call, TypedSpan values, device::Stream& stream) override;
    /// Enqueues what `post` starts on a channel of its own, with scratch for `scratch_count`
    /// elements of `dtype`.
    void enqueue(const Call& call, const device::Access& access, device::Stream& stream,
                 std::int64_t scratch_count, DType dtype, Post post);

    MpiCommunicator communicator_;
    LatestCall& latest_;
    std::int64_t calls_ = 0;
    std::int64_t in_flight_ = 0;
};

class MpiStreamMesh final : public StreamMesh {
  public:
    /// `progress` must outlive the mesh.
    MpiStreamMesh(const Group& world, const Group& shard_group, const Group& replicas,
                  Progress& progress);

    MpiStreamCommunicator& shard_group() override { return shard_group_; }
    MpiStreamCommunicator& replicas() override { return replicas_; }
    /// MPI's errors leave the calls that meet them.
    void check() override {}
    /// Messages that are under way cannot be taken back.
    bool abort() noexcept override;
    /// LogicError while collectives are under way.
    void close() override;

  private:
    MpiStreamCommunicator shard_group_;
    MpiStreamCommunicator replicas_;
};

}  // namespace fullshard::comm
