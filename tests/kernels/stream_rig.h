// A device with kernels and one stream, and memory of it that tests fill and read.
#pragma once

#include "base/span.h"
#include "device/device.h"
#include "kernels/stream_kernels.h"

#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::testing {

class StreamRig {
  public:
    /// `large_count` elements make every thread of the device loop.
    StreamRig(std::unique_ptr<device::Device> on, std::unique_ptr<kernels::StreamKernels> kernels,
              std::int64_t large_count)
        : device_(std::move(on)),
          kernels_(std::move(kernels)),
          stream_(device_->make_stream("compute")),
          large_count_(large_count) {}

    const kernels::StreamKernels& kernels() const { return *kernels_; }
    device::Stream& stream() { return *stream_; }
    std::int64_t large_count() const { return large_count_; }

    /// Device memory with these elements, `offset` elements behind an aligned address.
    template <typename T>
    TypedSpan put(const std::vector<T>& values, std::int64_t offset = 0) {
        const auto count = static_cast<std::int64_t>(values.size());
        const TypedSpan memory = make<T>(offset + count, device::Placement::kDevice);
        const TypedSpan staging = make<T>(count, device::Placement::kPinnedHost);
        device_->host_access({.name = "fill", .writes = {&staging, 1}});
        if (count != 0) std::memcpy(staging.data, values.data(), values.size() * sizeof(T));
        const TypedSpan result = memory.part(offset, count);
        stream_->copy(staging, result);
        return result;
    }

    /// The elements, once all that was enqueued is done.
    template <typename T>
    std::vector<T> get(TypedSpan memory) {
        const TypedSpan staging = make<T>(memory.count, device::Placement::kPinnedHost);
        stream_->copy(memory, staging);
        device_->synchronize({.timeout_s = 60});
        device_->host_access({.name = "read", .reads = {&staging, 1}});
        const auto elements = staging.as<T>();
        return {elements.begin(), elements.end()};
    }

  private:
    template <typename T>
    TypedSpan make(std::int64_t count, device::Placement placement) {
        const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
        return buffers_.emplace_back(device_->allocate("memory of a test", bytes, placement))
            .typed(DTypeOf<T>::value);
    }

    std::unique_ptr<device::Device> device_;
    std::unique_ptr<kernels::StreamKernels> kernels_;
    std::unique_ptr<device::Stream> stream_;
    std::vector<device::Buffer> buffers_;
    std::int64_t large_count_;
};

/// One implementation under test.
struct StreamRigMaker {
    std::string name;
    std::function<StreamRig()> make;
    /// Where given: empty where its device is here, else why it is not.
    std::function<std::string()> why_absent{};
};

}  // namespace fullshard::testing
