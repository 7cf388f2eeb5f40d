#include "train/run_device.h"

#include "base/error.h"
#include "comm/agree.h"
#include "comm/mpi_session.h"
#include "comm/nccl_entry.h"
#include "comm/waiter.h"
#include "device/device_module.h"
#include "kernels/cuda_kernels.h"
#include "shard/device_store.h"

#include <exception>
#include <optional>
#include <utility>

namespace fullshard::train {

RunDevice::RunDevice(std::unique_ptr<device::Device> device,
                     std::unique_ptr<kernels::StreamKernels> kernels, MakeMesh make_mesh)
    : device_(std::move(device)),
      kernels_(std::move(kernels)),
      make_mesh_(std::move(make_mesh)),
      compute_(device_->default_stream()),
      staging_(*device_, *compute_, [this](const device::Event& event) { wait(event); }),
      spans_(*device_, *compute_, [this](const device::Event& event) { wait(event); }) {}

RunDevice::~RunDevice() {
    if (!mesh_) return;
    if (std::uncaught_exceptions() == 0) {
        try {
            mesh_->close();
            return;
        } catch (...) {  // NOLINT(bugprone-empty-catch): what the run has done is done
        }
    }
    // Memory that kernels of a communicator still wait for cannot be freed.
    if (!mesh_->abort()) {
        comm::MpiSession::abort("the GPU's communicators did not end",
                                static_cast<int>(ExitCode::kCommunication));
    }
}

void RunDevice::connect(const comm::Group& world, const comm::Mesh& mesh) {
    ensure(!mesh_, "a device is connected once");
    mesh_ = make_mesh_(world, mesh, *device_, progress_);
}

std::unique_ptr<shard::UnitStore> RunDevice::make_store(const comm::Group& world,
                                                        const comm::Mesh& mesh,
                                                        const shard::Layout& layout,
                                                        const shard::Schedule& schedule,
                                                        const shard::StoreOptions& options) {
    connect(world, mesh);
    return std::make_unique<shard::DeviceStore>(
        layout, schedule, options,
        shard::DeviceStore::Means{*device_, *compute_, *kernels_, *mesh_, staging_, spans_});
}

std::unique_ptr<optim::StateDevice> RunDevice::make_state() {
    return std::make_unique<optim::StreamState>(*device_, *compute_, *kernels_, staging_);
}

std::unique_ptr<RunDevice> open_device(const config::Device& keys, const comm::Topology& topology) {
    if (keys.kind == config::Processor::kCpu) return nullptr;
    std::unique_ptr<RunDevice> opened;
    comm::agree(topology.world, [&] {
        const device::DeviceModule module;
        // More ranks than GPUs share them, which NCCL's start refuses with the remedies.
        const int number = topology.node.rank() % module.cuda().count();
        const std::string process = comm::process_name();
        opened = std::make_unique<RunDevice>(
            module.cuda().open(number, process),
            module.entry<const kernels::CudaKernelsMaker>("fullshard_cuda_kernels").make(process),
            [module, number, process](const comm::Group& world, const comm::Mesh& mesh,
                                      device::Device& device, comm::Progress& progress) {
                const auto& nccl = module.entry<const comm::NcclEntry>(comm::NcclEntry::kFunction);
                return nccl.make_mesh(world, mesh.shard_group, mesh.replicas, device, progress,
                                      {.cuda_device = number}, process);
            });
    });
    return opened;
}

}  // namespace fullshard::train
