// The entries of the device module that belong to no library but CUDA.
#include "base/error.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/versions.h"
#include "device/module_build.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

namespace fullshard::device {

namespace {

class Devices final : public CudaDevices {
  public:
    CudaVersions versions() const override { return cuda_versions(); }
    int count() const override { return cuda_device_count(); }
    std::unique_ptr<Device> open(int number, std::string process) const override {
        const int devices = count();
        if (number < 0 || number >= devices)
            throw RunError(fmt::format("{}: there is no GPU {}; this process sees {}, from 0",
                                       process, number, devices));
        return std::make_unique<CudaDevice>(number, std::move(process));
    }
};

}  // namespace

}  // namespace fullshard::device

extern "C" [[gnu::visibility("default")]] void* fullshard_cuda_build() {
    static std::string build = fullshard::device::module_build();
    return build.data();
}

extern "C" [[gnu::visibility("default")]] void* fullshard_cuda_devices() {
    static fullshard::device::Devices devices;
    return static_cast<fullshard::device::CudaDevices*>(&devices);
}
