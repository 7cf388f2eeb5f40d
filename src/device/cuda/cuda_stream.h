// CUDA's streams and events behind the interface of device.h.
#pragma once

#include "device/cuda/check.h"
#include "device/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <string>

namespace fullshard::device {

class CudaEvent final : public Event {
  public:
    /// `process` outlives it.
    CudaEvent(const std::string& process, EventUse use);
    ~CudaEvent() override;

    bool reached() const override;
    double seconds_since(const Event& earlier) const override;

    cudaEvent_t native() const { return event_; }

  private:
    const std::string& process_;
    cudaEvent_t event_ = nullptr;
};

/// One of its own is not ordered with CUDA's default stream.
class CudaStream final : public Stream {
  public:
    CudaStream(CudaDevice& device, std::string name, Priority priority);
    /// CUDA's default stream itself.
    explicit CudaStream(CudaDevice& device);
    ~CudaStream() override;

    void* native() const override { return stream_; }

    void record(Event& event) override;
    void wait(const Event& event) override;
    void copy(TypedSpan from, TypedSpan to) override;
    void fill(TypedSpan memory, std::byte value) override;
    void run(const Access& access, std::function<void()> work) override;
    void run(const Access& access, std::unique_ptr<PolledOperation> work) override;

    /// Records an event of the stream's own, so that waiting for all streams makes none.
    void record_end() { record(end_); }
    const CudaEvent& end() const { return end_; }

  private:
    CudaDevice& device_;
    cudaStream_t stream_ = nullptr;  ///< null: the default one
    CudaEvent end_;
};

}  // namespace fullshard::device
