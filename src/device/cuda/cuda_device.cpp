#include "device/cuda/cuda_device.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/cuda/check.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/versions.h"
#include "device/host_memory.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

namespace fullshard::device {

namespace {

/// Of the oldest architecture that kernels are compiled for (CMAKE_CUDA_ARCHITECTURES).
constexpr int kOldestMajor = 8;
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// Looks at the device without rest for this long, then between naps: a wait within a step is
/// short, and a long one should leave the core to MPI's and the loader's threads.
constexpr double kBusyWait_s = 200e-6;
constexpr auto kNap = std::chrono::microseconds(50);

/// "GPU-01234567-89ab-cdef-0123-456789abcdef"
std::string format_uuid(const cudaUUID_t& uuid) {
    std::string text = "GPU";
    for (int i = 0; i < 16; ++i) {
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
    }
    return text;
}

/// Waits for one event until `end`, a time of now_seconds().
void wait_until(double end, const Event& event, const HostWait& how, std::string_view process) {
    const double begin = now_seconds();
    while (!event.reached()) {
        if (how.idle) how.idle();
        const double now = now_seconds();
        if (now > end)
            throw TimeoutError(fmt::format("{}: work on the device was not done within {} s",
                                           process, how.timeout_s));
        if (now - begin < kBusyWait_s)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(kNap);
    }
}

}  // namespace

CudaDevice::CudaDevice(int number, std::string process) : process_(std::move(process)) {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, number), "cudaGetDeviceProperties", process_);
    if (properties.major < kOldestMajor)
        throw RunError(fmt::format(
            "{}: GPU {} is {} of compute capability {}.{}; FullShard's "
            "kernels need {}.0 or newer",
            process_, number, properties.name, properties.major, properties.minor, kOldestMajor));
    check_cuda(cudaSetDevice(number), "cudaSetDevice", process_);
    const CudaVersions versions = cuda_versions();
    description_ = fmt::format("{} (compute capability {}.{}, {:.0f} GiB, driver {}, runtime {})",
                               properties.name, properties.major, properties.minor,
                               static_cast<double>(properties.totalGlobalMem) / kGiB,
                               versions.driver, versions.runtime);
    uuid_ = format_uuid(properties.uuid);
}

MemoryInfo CudaDevice::memory() const {
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", process_);
    return {static_cast<std::int64_t>(total), static_cast<std::int64_t>(free)};
}

Buffer CudaDevice::allocate(std::string_view name, std::int64_t bytes, Placement placement) {
    ensure(bytes >= 0, "the length of a buffer is not negative");
    const bool pinned = placement == Placement::kPinnedHost;
    void* memory = nullptr;
    const cudaError_t status =
        pinned ? cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocPortable)
               : cudaMalloc(&memory, static_cast<std::size_t>(bytes));
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        const MemoryInfo info = pinned ? host_memory_info() : this->memory();
        throw RunError(fmt::format("{}: '{}' needs {} bytes of {}; {} of {} are free{}{}", process_,
                                   name, bytes, pinned ? "pinned host memory" : "device memory",
                                   info.free_bytes, info.total_bytes, pinned ? "" : " on ",
                                   pinned ? "" : description_));
    }
    check_cuda(status, pinned ? "cudaHostAlloc" : "cudaMalloc", process_);
    ++created_;
    // Errors of earlier work turn up here too, and a destructor could do nothing about them.
    const auto release = [pinned](std::byte* freed) {
        pinned ? cudaFreeHost(freed) : cudaFree(freed);
    };
    return {{static_cast<std::byte*>(memory), release},
            bytes,
            pinned ? DeviceKind::kHost : DeviceKind::kCuda};
}

std::unique_ptr<Stream> CudaDevice::make_stream(std::string name, Priority priority) {
    ++created_;
    return std::make_unique<CudaStream>(*this, std::move(name), priority);
}

std::unique_ptr<Stream> CudaDevice::default_stream() {
    ++created_;
    return std::make_unique<CudaStream>(*this);
}

std::unique_ptr<Event> CudaDevice::make_event(EventUse use) {
    ++created_;
    return std::make_unique<CudaEvent>(process_, use);
}

void CudaDevice::wait(const Event& event, const HostWait& how) {
    wait_until(now_seconds() + how.timeout_s, event, how, process_);
}

void CudaDevice::synchronize(const HostWait& how) {
    const double end = now_seconds() + how.timeout_s;
    for (CudaStream* stream : streams_) stream->record_end();
    for (const CudaStream* stream : streams_) wait_until(end, stream->end(), how, process_);
}

void CudaDevice::push_range(std::string_view name) {
    nvtxRangePushA(name.data());
}

void CudaDevice::pop_range() {
    nvtxRangePop();
}

}  // namespace fullshard::device
