// On a GPU: CUDA's kernels pass the tests of the host's.
#include "base/error.h"
#include "device/device_module.h"
#include "kernels/cuda_kernels.h"
#include "kernels/stream_kernels_test.h"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

namespace fullshard::kernels {
namespace {

/// Each thread of a launch on up to 150 multiprocessors takes more than one packet of fp32.
constexpr std::int64_t kLargeCount = 1'300'021;

testing::StreamRig on_cuda() {
    const device::DeviceModule module;
    auto gpu = module.cuda().open(0, "rank 0 on here");
    auto kernels = module.entry<const CudaKernelsMaker>("fullshard_cuda_kernels").make("rank 0");
    return {std::move(gpu), std::move(kernels), kLargeCount};
}

std::string why_no_gpu() {
    if (!std::filesystem::exists(device::DeviceModule::installed_file()))
        return "this build has no device module";
    try {
        const device::DeviceModule module;
        module.cuda().open(0, "rank 0 on here");
    } catch (const RunError& error) {
        return error.what();
    }
    return {};
}

INSTANTIATE_TEST_SUITE_P(CudaDevices, StreamKernelsTest,
                         ::testing::Values(testing::StreamRigMaker{"cuda", on_cuda, why_no_gpu}),
                         rig_name);

}  // namespace
}  // namespace fullshard::kernels
