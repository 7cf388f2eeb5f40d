// Where optimizer state lives, and who computes on it.
#pragma once

#include "base/aligned_buffer.h"
#include "base/span.h"
#include "device/device.h"
#include "device/staging.h"
#include "kernels/square_sum.h"
#include "kernels/stream_kernels.h"

#include <cstdint>
#include <span>
#include <vector>

namespace fullshard::optim {

/// Spans are of its memory. Used by one thread.
class StateDevice {
  public:
    virtual ~StateDevice() = default;
    /// Whether the host may touch its memory itself.
    virtual bool on_host() const = 0;
    /// Zeros in fp32 that live as long as this object.
    virtual TypedSpan zeros(std::int64_t count) = 0;
    /// One AdamW update with the copy, if there is one. May return before it is done.
    virtual void update(const kernels::AdamWMemory& memory,
                        const kernels::AdamWScalars& scalars) = 0;
    /// Exact sum of the squares of all values of fp32 spans. The host waits for it.
    virtual kernels::SquareSum square_sum(std::span<const TypedSpan> values) = 0;
    /// Copies between fp32 spans and the host, which waits for it.
    virtual void read(const TypedSpan& from, std::span<float> to) = 0;
    virtual void write(std::span<const float> from, const TypedSpan& to) = 0;
};

/// The host, at once.
class HostState final : public StateDevice {
  public:
    bool on_host() const override { return true; }
    TypedSpan zeros(std::int64_t count) override;
    void update(const kernels::AdamWMemory& memory, const kernels::AdamWScalars& scalars) override;
    kernels::SquareSum square_sum(std::span<const TypedSpan> values) override;
    void read(const TypedSpan& from, std::span<float> to) override;
    void write(std::span<const float> from, const TypedSpan& to) override;

  private:
    std::vector<AlignedBuffer> memory_;
};

/// A device, in the order of one of its streams.
class StreamState final : public StateDevice {
  public:
    /// Everything outlives it. `staging` copies in the stream's order.
    StreamState(device::Device& device, device::Stream& stream,
                const kernels::StreamKernels& kernels, device::Staging& staging);

    bool on_host() const override { return false; }
    TypedSpan zeros(std::int64_t count) override;
    void update(const kernels::AdamWMemory& memory, const kernels::AdamWScalars& scalars) override;
    kernels::SquareSum square_sum(std::span<const TypedSpan> values) override;
    void read(const TypedSpan& from, std::span<float> to) override;
    void write(std::span<const float> from, const TypedSpan& to) override;

  private:
    device::Device& device_;
    device::Stream& stream_;
    const kernels::StreamKernels& kernels_;
    device::Staging& staging_;
    device::Buffer bins_;  ///< of a sum of squares
    std::vector<device::Buffer> memory_;
};

}  // namespace fullshard::optim
