// What CUDA's runtime and driver are, and whether there is a device at all.
#pragma once

#include "device/cuda_devices.h"

namespace fullshard::device {

/// See CudaDevices::versions.
CudaVersions cuda_versions();
/// See CudaDevices::count.
int cuda_device_count();

}  // namespace fullshard::device
