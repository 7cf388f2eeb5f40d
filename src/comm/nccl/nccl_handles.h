// Inside comm/nccl only: who owns NCCL's communicators, and how they end.
#pragma once

#include "comm/group.h"

#include <nccl.h>

#include <array>
#include <memory>
#include <string_view>

namespace fullshard::comm {

/// The NCCL communicators of one mesh. NCCL may hang where one of them is taken down while a kernel
/// of another waits for a peer, so they are stopped together.
class NcclHandles {
  public:
    enum Slot { kWorld, kShardGroup, kReplicas, kSlots };

    explicit NcclHandles(double abort_timeout_s)
        : abort_timeout_s_(abort_timeout_s), slots_(std::make_shared<Slots>()) {}
    ~NcclHandles() { abort(); }
    NcclHandles(const NcclHandles&) = delete;
    NcclHandles& operator=(const NcclHandles&) = delete;

    /// Null where there is none. NCCL writes to it in the background until the communicator is
    /// created. LogicError after `abort`.
    ncclComm_t& operator[](Slot slot);

    /// The orderly end of one communicator, called `name`, when its streams are done; none is
    /// legal. Throws AgreedError on all ranks of the world when it fails on any or takes longer
    /// than the world's deadline. Collective over `world`.
    void close(Slot slot, const Group& world, std::string_view name);

    /// Ends all communicators whatever they are doing, without their peers. False where NCCL did
    /// not let go in time: a thread of its own is then left behind with it.
    bool abort() noexcept;

  private:
    using Slots = std::array<ncclComm_t, kSlots>;
    static void stop(const Slots& slots, double revoke_timeout_s);

    double abort_timeout_s_;
    std::shared_ptr<Slots> slots_;  ///< null after `abort`
};

}  // namespace fullshard::comm
