#include "device/cuda/versions.h"

#include "base/error.h"
#include "device/cuda/check.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

namespace fullshard::device {

namespace {

constexpr std::string_view kProcess = "CUDA";

/// CUDA's numbers are 1000 * major + 10 * minor.
std::string format_version(int number) {
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace

CudaVersions cuda_versions() {
    int driver = 0;
    int runtime = 0;
    check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion", kProcess);
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion", kProcess);
    if (driver == 0)
        throw RunError(
            "this machine has no NVIDIA driver (libcuda.so.1 is not found), so there is no GPU to "
            "use: run on a node with one, or on the CPU");
    return {format_version(driver), format_version(runtime)};
}

int cuda_device_count() {
    const CudaVersions versions = cuda_versions();
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorInsufficientDriver)
        throw RunError(
            fmt::format("the NVIDIA driver runs CUDA up to {}, FullShard is built with "
                        "CUDA {}: a newer driver is needed",
                        versions.driver, versions.runtime));
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        throw RunError(
            "the NVIDIA driver shows this process no GPU: ask the scheduler for one "
            "(--gpus-per-task), and look at CUDA_VISIBLE_DEVICES");
    check_cuda(status, "cudaGetDeviceCount", kProcess);
    return count;
}

}  // namespace fullshard::device
