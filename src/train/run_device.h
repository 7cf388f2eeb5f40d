// The device of a rank: its streams, its kernels and its way to other ranks' devices.
#pragma once

#include "comm/progress.h"
#include "comm/stream_communicator.h"
#include "comm/topology.h"
#include "config/deck.h"
#include "device/device.h"
#include "device/span_recorder.h"
#include "device/staging.h"
#include "kernels/stream_kernels.h"
#include "optim/state_device.h"
#include "shard/layout.h"
#include "shard/schedule.h"
#include "shard/store_options.h"
#include "shard/unit_store.h"
#include "train/phases.h"

#include <functional>
#include <memory>
#include <string>

namespace fullshard::train {

class RunDevice {
  public:
    /// Makes the communicators of a mesh's ranks. Collective.
    using MakeMesh = std::function<std::unique_ptr<comm::StreamMesh>(
        const comm::Group& world, const comm::Mesh& mesh, device::Device& device,
        comm::Progress& progress)>;

    RunDevice(std::unique_ptr<device::Device> device,
              std::unique_ptr<kernels::StreamKernels> kernels, MakeMesh make_mesh);
    /// Ends the communicators, in order where nothing unwinds: collective then.
    ~RunDevice();
    RunDevice(const RunDevice&) = delete;
    RunDevice& operator=(const RunDevice&) = delete;

    /// Makes the communicators of a mesh and tries each kind of collective; once. Throws
    /// AgreedError. Collective.
    void connect(const comm::Group& world, const comm::Mesh& mesh);
    /// Connects, and makes the store of a run; one a device. Collective.
    std::unique_ptr<shard::UnitStore> make_store(const comm::Group& world, const comm::Mesh& mesh,
                                                 const shard::Layout& layout,
                                                 const shard::Schedule& schedule,
                                                 const shard::StoreOptions& options);
    /// For an optimizer over that store.
    std::unique_ptr<optim::StateDevice> make_state();

    /// Lets phases show on the device what they are, and spans of the device on a timeline.
    void show(PhaseClock& clock) { clock.compute_on(*device_, *compute_, spans_); }
    device::SpanRecorder& spans() { return spans_; }

    std::string describe() const { return device_->describe(); }
    device::MemoryInfo memory() const { return device_->memory(); }

    const kernels::StreamKernels& kernels() const { return *kernels_; }
    /// On which the model computes, too.
    device::Stream& compute() { return *compute_; }

  private:
    void wait(const device::Event& event) { mesh_->wait(*device_, event); }

    std::unique_ptr<device::Device> device_;
    std::unique_ptr<kernels::StreamKernels> kernels_;
    MakeMesh make_mesh_;
    std::unique_ptr<device::Stream> compute_;
    device::Staging staging_;
    device::SpanRecorder spans_;
    comm::Progress progress_;
    std::unique_ptr<comm::StreamMesh> mesh_;
};

/// The device that the deck asks for, null for the CPU: each rank takes the GPU of its number on
/// the node. Throws AgreedError where any rank has none. Collective.
std::unique_ptr<RunDevice> open_device(const config::Device& keys, const comm::Topology& topology);

}  // namespace fullshard::train
