#include "app/run_devices.h"

namespace fullshard::app {

doctor::DeviceFacts RunDevices::open(const comm::Topology& topology) {
    device_ = train::open_device(keys_, topology);
    const device::MemoryInfo memory = device_->memory();
    return {device_->describe(), memory.total_bytes, memory.free_bytes};
}

void RunDevices::connect(const comm::Topology& topology) {
    device_->connect(topology.world,
                     comm::make_mesh(topology, topology.world.size(), /*node_shared=*/false));
}

}  // namespace fullshard::app
