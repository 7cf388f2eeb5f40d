// Loads libfullshard_cuda.so: everything that needs CUDA, NCCL or LibTorch's CUDA part.
#pragma once

#include "device/cuda_devices.h"

#include <filesystem>

namespace fullshard::device {

/// The program is linked to none of those libraries. It loads this module when a run wants a
/// device, so that runs on the CPU start without them and one installation serves every node.
class DeviceModule {
  public:
    /// lib/fullshard/libfullshard_cuda.so beside the program's folder, in build and install tree.
    static std::filesystem::path installed_file();

    /// Takes a second or more: the libraries behind it hold two gigabytes. Throws UsageError where
    /// there is no such file, and RunError where a library that it needs is missing or it is of
    /// another build than the program. A driver is not needed yet.
    explicit DeviceModule(const std::filesystem::path& file = installed_file());

    /// Throws nothing; what it returns does where there is no driver.
    const CudaDevices& cuda() const { return entry<const CudaDevices>("fullshard_cuda_devices"); }

    /// What the module's function of this name returns: `extern "C" void* f()` with a pointer to an
    /// Interface that lives for ever. LogicError where there is no such function.
    template <typename Interface>
    Interface& entry(const char* function) const {
        return *static_cast<Interface*>(call(function));
    }

  private:
    void* call(const char* function) const;

    void* handle_;
};

}  // namespace fullshard::device
