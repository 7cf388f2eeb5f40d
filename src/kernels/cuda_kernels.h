// The kernels of CUDA devices, as the device module offers them.
#pragma once

#include "kernels/stream_kernels.h"

#include <memory>
#include <string>

namespace fullshard::kernels {

/// What the device module's entry `fullshard_cuda_kernels` returns (device/device_module.h).
class CudaKernelsMaker {
  public:
    virtual ~CudaKernelsMaker() = default;

    /// For streams of the calling thread's current device. `process` opens messages: "rank 3 on
    /// node7". Throws RunError where there is no device. So do the calls of the kernels, when CUDA
    /// refuses a launch.
    virtual std::unique_ptr<StreamKernels> make(std::string process) const = 0;
};

}  // namespace fullshard::kernels
