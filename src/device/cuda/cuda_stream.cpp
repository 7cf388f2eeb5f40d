#include "device/cuda/cuda_stream.h"

#include "base/error.h"
#include "device/host_memory.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace fullshard::device {

namespace {

/// A copy from or to pageable memory is done in pieces by the calling thread, which then waits.
void check_pinned(TypedSpan span, std::string_view process) {
    if (span.device != DeviceKind::kHost) return;
    cudaPointerAttributes attributes{};
    check_cuda(cudaPointerGetAttributes(&attributes, span.data), "cudaPointerGetAttributes",
               process);
    ensure(attributes.type == cudaMemoryTypeHost, "streams copy from and to pinned host memory");
}

[[noreturn]] void refuse(const Access& access, std::string_view stream) {
    throw LogicError(fmt::format("operation '{}' of the host was given to CUDA stream '{}'",
                                 access.name, stream));
}

}  // namespace

CudaEvent::CudaEvent(const std::string& process, EventUse use) : process_(process) {
    const unsigned flags = use == EventUse::kTiming ? cudaEventDefault : cudaEventDisableTiming;
    check_cuda(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreateWithFlags", process_);
}

CudaEvent::~CudaEvent() {
    cudaEventDestroy(event_);
}

bool CudaEvent::reached() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
        cudaGetLastError();  // CUDA remembers it as if it were an error
        return false;
    }
    check_cuda(status, "cudaEventQuery", process_);
    return true;
}

double CudaEvent::seconds_since(const Event& earlier) const {
    float milliseconds = 0.0F;
    check_cuda(
        cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).event_, event_),
        "cudaEventElapsedTime", process_);
    return static_cast<double>(milliseconds) * 1e-3;
}

CudaStream::CudaStream(CudaDevice& device, std::string name, Priority priority)
    : Stream(std::move(name)), device_(device), end_(device.process_, EventUse::kOrder) {
    int least = 0;
    int greatest = 0;
    check_cuda(cudaDeviceGetStreamPriorityRange(&least, &greatest),
               "cudaDeviceGetStreamPriorityRange", device_.process_);
    check_cuda(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking,
                                            priority == Priority::kHigh ? greatest : least),
               "cudaStreamCreateWithPriority", device_.process_);
    device_.streams_.push_back(this);
}

CudaStream::CudaStream(CudaDevice& device)
    : Stream("compute"), device_(device), end_(device.process_, EventUse::kOrder) {
    device_.streams_.push_back(this);
}

CudaStream::~CudaStream() {
    std::erase(device_.streams_, this);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void CudaStream::record(Event& event) {
    check_cuda(cudaEventRecord(static_cast<CudaEvent&>(event).native(), stream_), "cudaEventRecord",
               device_.process_);
}

void CudaStream::wait(const Event& event) {
    check_cuda(cudaStreamWaitEvent(stream_, static_cast<const CudaEvent&>(event).native(), 0),
               "cudaStreamWaitEvent", device_.process_);
}

void CudaStream::copy(TypedSpan from, TypedSpan to) {
    check_copy(from, to);
    if (from.count == 0) return;
    check_pinned(from, device_.process_);
    check_pinned(to, device_.process_);
    check_cuda(cudaMemcpyAsync(to.data, from.data, static_cast<std::size_t>(from.bytes()),
                               cudaMemcpyDefault, stream_),
               "cudaMemcpyAsync", device_.process_);
}

void CudaStream::fill(TypedSpan memory, std::byte value) {
    if (memory.count == 0) return;
    check_cuda(cudaMemsetAsync(memory.data, std::to_integer<int>(value),
                               static_cast<std::size_t>(memory.bytes()), stream_),
               "cudaMemsetAsync", device_.process_);
}

void CudaStream::run(const Access& access, std::function<void()>) {
    refuse(access, name());
}

void CudaStream::run(const Access& access, std::unique_ptr<PolledOperation>) {
    refuse(access, name());
}

}  // namespace fullshard::device
