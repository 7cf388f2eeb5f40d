#include "comm/nccl/nccl_mesh.h"

#include "base/error.h"
#include "comm/agree.h"
#include "comm/nccl/nccl_checks.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/nccl/nccl_handles.h"
#include "comm/nccl/nccl_status.h"
#include "comm/nccl/nccl_warm_up.h"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace fullshard::comm {

namespace {

using Slot = NcclHandles::Slot;

/// As errors, reports and NCCL's own tools call them; NCCL keeps the pointers.
const char* name_of(Slot slot) {
    if (slot == NcclHandles::kWorld) return "world communicator";
    return slot == NcclHandles::kShardGroup ? "shard communicator" : "replica communicator";
}

ncclConfig_t config_of(Slot slot) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    // Only the calls of a non-blocking communicator return when a peer is gone.
    config.blocking = 0;
    // Shared resources would keep shard and replica collectives from running at the same time, and
    // an abort of one would end the others.
    config.splitShare = 0;
    config.commName = name_of(slot);
    return config;
}

class NcclMesh final : public StreamMesh {
  public:
    NcclMesh(const Group& world, const Group& shard_group, const Group& replicas,
             device::Device& device, Progress& progress, const NcclOptions& options)
        : StreamMesh(world, progress), options_(options), handles_(options.abort_timeout_s) {
        WarmUps warm_ups;
        try {
            start(shard_group, replicas, device, warm_ups);
        } catch (const std::exception& error) {
            if (handles_.abort()) throw;
            // To free memory that a kernel may still use would wait for the kernel.
            for (auto& warm_up : warm_ups) static_cast<void>(warm_up.release());
            throw CommunicationError(
                fmt::format("{}; and NCCL could not be stopped on this rank", error.what()));
        }
    }

    NcclCommunicator& shard_group() override { return *shard_group_; }
    NcclCommunicator& replicas() override { return *replicas_; }

    void check() override {
        shard_group_->check();
        replicas_->check();
    }

    bool abort() noexcept override { return handles_.abort(); }

    void close() override {
        for (const Slot slot :
             {NcclHandles::kShardGroup, NcclHandles::kReplicas, NcclHandles::kWorld}) {
            handles_.close(slot, world(), name_of(slot));
        }
    }

  private:
    using WarmUps = std::array<std::unique_ptr<WarmUp>, 2>;

    void start(const Group& shard_group, const Group& replicas, device::Device& device,
               WarmUps& warm_ups) {
        prepare_environment();
        check_version(world());
        check_devices(world(), device.uuid());
        create_world();
        const bool shard_is_world = shard_group.members() == world().members();
        const bool replicas_are_world = replicas.members() == world().members();
        if (!shard_is_world) split(NcclHandles::kShardGroup, shard_group);
        if (!replicas_are_world) split(NcclHandles::kReplicas, replicas);
        if (!shard_is_world && !replicas_are_world) {
            // It carries nothing, and would hold memory of the device.
            handles_.close(NcclHandles::kWorld, world(), name_of(NcclHandles::kWorld));
        }
        const Slot shard_slot = shard_is_world ? NcclHandles::kWorld : NcclHandles::kShardGroup;
        const Slot replica_slot = replicas_are_world ? NcclHandles::kWorld : NcclHandles::kReplicas;
        agree(world(), [&] {
            warm_ups[0] = std::make_unique<WarmUp>(shard_group, handles_[shard_slot], device);
            warm_ups[1] = std::make_unique<WarmUp>(replicas, handles_[replica_slot], device);
        });
        warm_ups[0]->run(world(), name_of(shard_slot), options_.start_timeout_s);
        warm_ups[1]->run(world(), name_of(replica_slot), options_.start_timeout_s);
        shard_group_.emplace(shard_group, handles_[shard_slot], device.kind(), progress(),
                             latest());
        replicas_.emplace(replicas, handles_[replica_slot], device.kind(), progress(), latest());
    }

    void create_world() {
        ncclUniqueId id{};
        agree(world(), [&] {
            if (world().rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        });
        const std::string sent =
            world().broadcast(std::string(id.internal, sizeof id.internal), /*root=*/0);
        ensure(sent.size() == sizeof id.internal, "a unique id is broadcast whole");
        sent.copy(id.internal, sizeof id.internal);
        // A broadcast may be over here and need us to call MPI again for it to be over elsewhere;
        // NCCL never would.
        world().barrier();
        ncclConfig_t config = config_of(NcclHandles::kWorld);
        create(NcclHandles::kWorld, world(), "ncclCommInitRankConfig", [&](ncclComm_t& comm) {
            return ncclCommInitRankConfig(&comm, world().size(), id, world().rank(), &config);
        });
    }

    void split(Slot slot, const Group& group) {
        ncclConfig_t config = config_of(slot);
        // The lowest member is in no other group, as its number in the job is: that is the colour.
        create(slot, group, "ncclCommSplit", [&](ncclComm_t& comm) {
            return ncclCommSplit(handles_[NcclHandles::kWorld], group.members().front(),
                                 group.rank(), &comm, &config);
        });
    }

    /// Makes `call` on all ranks and waits until the communicator is there.
    void create(Slot slot, const Group& group, const char* call_name,
                const std::function<ncclResult_t(ncclComm_t&)>& call) {
        ncclComm_t& comm = handles_[slot];
        bool called = false;
        agree_done(world(), fmt::format("creation of the {}", name_of(slot)),
                   options_.start_timeout_s, [&] {
                       if (!std::exchange(called, true)) check_nccl(call(comm), call_name);
                       // A child is known only when its parent is done with the split.
                       ncclComm_t parent = handles_[NcclHandles::kWorld];
                       return parent != nullptr && settled(parent, call_name) && comm != nullptr &&
                              settled(comm, call_name);
                   });
        agree(world(), [&] { verify(comm, group); });
    }

    void verify(ncclComm_t comm, const Group& group) const {
        int rank = -1, size = -1, device = -1;
        check_nccl(ncclCommUserRank(comm, &rank), "ncclCommUserRank");
        check_nccl(ncclCommCount(comm, &size), "ncclCommCount");
        check_nccl(ncclCommCuDevice(comm, &device), "ncclCommCuDevice");
        ensure(rank == group.rank() && size == group.size(), "NCCL counts ranks as MPI does");
        ensure(device == options_.cuda_device, "NCCL uses this rank's GPU");
    }

    NcclOptions options_;
    NcclHandles handles_;
    std::optional<NcclCommunicator> shard_group_;
    std::optional<NcclCommunicator> replicas_;
};

}  // namespace

std::unique_ptr<StreamMesh> make_nccl_mesh(const Group& world, const Group& shard_group,
                                           const Group& replicas, device::Device& device,
                                           Progress& progress, const NcclOptions& options) {
    return std::make_unique<NcclMesh>(world, shard_group, replicas, device, progress, options);
}

}  // namespace fullshard::comm
