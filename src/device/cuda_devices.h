// The CUDA devices of this process, as the device module offers them.
#pragma once

#include "device/device.h"

#include <memory>
#include <string>

namespace fullshard::device {

/// What CUDA's runtime says of itself: "13.0" for both where they fit.
struct CudaVersions {
    std::string driver;   ///< the newest CUDA that the driver can run
    std::string runtime;  ///< the CUDA that is linked
};

/// Lives as long as the module that made it: for ever.
class CudaDevices {
  public:
    virtual ~CudaDevices() = default;

    /// Throws RunError where there is no driver, one too old, or no device, and says which.
    virtual CudaVersions versions() const = 0;
    /// Devices that this process sees, at least one. Throws as versions() does.
    virtual int count() const = 0;
    /// Makes the device current for the calling thread, which is the one to use it. `process` opens
    /// messages: "rank 3 on node7". Throws RunError where the device cannot be used: no such
    /// number, a compute capability below that of the kernels, or an error of CUDA.
    virtual std::unique_ptr<Device> open(int number, std::string process) const = 0;
};

}  // namespace fullshard::device
