// StreamCommunicator over one NCCL communicator.
#pragma once

#include "comm/group.h"
#include "comm/progress.h"
#include "comm/stream_communicator.h"

#include <nccl.h>

namespace fullshard::comm {

/// Calls are noted in the ledger under the group's name and, where comm.check is on, compared with
/// the peers' before they are enqueued. Sums are ncclSum: ncclAvg rounds its factor to the type of
/// the values.
class NcclCommunicator final : public StreamCommunicator {
  public:
    /// `comm` has the group's ranks in its order, is settled and, like `progress` and `latest`,
    /// outlives this object. `memory` is that of its device.
    NcclCommunicator(const Group& group, ncclComm_t comm, DeviceKind memory, Progress& progress,
                     LatestCall& latest);

    /// Throws CommunicationError when a collective has failed after it was enqueued.
    void check() const;

  private:
    void enqueue_all_gather(const Call& call, const RankBlocks& blocks,
                            device::Stream& stream) override;
    void enqueue_reduce_scatter(const Call& call, const RankBlocks& blocks, TypedSpan out,
                                device::Stream& stream) override;
    void enqueue_all_reduce(const Call& call, TypedSpan values, device::Stream& stream) override;
    void enqueue_broadcast(const Call& call, TypedSpan values, device::Stream& stream) override;
    /// Notes the call, makes it unless it has no elements, and waits until NCCL has launched it.
    template <typename Launch>
    void issue(const Call& call, const char* nccl_name, Launch launch);

    ncclComm_t comm_;
    Progress& progress_;
    LatestCall& latest_;
};

}  // namespace fullshard::comm
