// NCCL as the device module offers it: neither this header nor its users see NCCL or CUDA.
#pragma once

#include "comm/group.h"
#include "comm/progress.h"
#include "comm/stream_communicator.h"
#include "device/device.h"

#include <memory>
#include <string>
#include <vector>

namespace fullshard::comm {

struct NcclOptions {
    /// For each step of the start: creating a communicator, a first collective. NCCL itself retries
    /// connections for about a minute.
    double start_timeout_s = 180.0;
    /// For NCCL to let go of its communicators after an error.
    double abort_timeout_s = 10.0;
    /// This rank's GPU as CUDA counts them; current on the calling thread.
    int cuda_device = 0;
};

/// Lives as long as the module that made it: for ever.
class NcclEntry {
  public:
    /// The module's function that returns it: device_module.entry<const NcclEntry>(kFunction).
    static constexpr const char* kFunction = "fullshard_nccl";

    virtual ~NcclEntry() = default;

    /// Communicators of `shard_group` and `replicas`, this rank's part of `world` each; they are
    /// split from one of the world, which is kept only where one of them is the whole world. When
    /// it returns, all ranks have one version of NCCL, no two share a GPU, and every kind of
    /// collective has run and was right. Sets NCCL_LAUNCH_ORDER_IMPLICIT where the environment does
    /// not. `process` is process_name() of the caller: the module has a copy of its own.
    ///
    /// Throws AgreedError on all ranks alike when the start fails on any or takes too long, with
    /// what NCCL had begun undone; CommunicationError where it could not be undone. `device` and
    /// `progress` must outlive the mesh. Collective over `world`.
    virtual std::unique_ptr<StreamMesh> make_mesh(const Group& world, const Group& shard_group,
                                                  const Group& replicas, device::Device& device,
                                                  Progress& progress, const NcclOptions& options,
                                                  const std::string& process) const = 0;

    /// One line for the log each: environment variables that harm, and all that set NCCL up.
    /// Not collective.
    virtual std::vector<std::string> environment_notes() const = 0;
};

}  // namespace fullshard::comm
