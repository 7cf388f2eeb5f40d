// The kernels of a device whose streams the host computes.
#pragma once

#include "kernels/stream_kernels.h"

namespace fullshard::kernels {

/// Enqueues the CPU's kernels on streams of host devices (device::Stream::run) and declares what
/// they read and write. The reference that CudaKernels is compared with.
class HostKernels final : public StreamKernels {
  public:
    void convert(TypedSpan from, TypedSpan to, device::Stream& stream) const override;
    void accumulate(TypedSpan from, TypedSpan sum, device::Stream& stream) const override;
    void scale(TypedSpan values, double factor, device::Stream& stream) const override;
    void square_sum(TypedSpan values, TypedSpan bins, device::Stream& stream) const override;
    void adamw_update(const AdamWMemory& memory, const AdamWScalars& scalars,
                      std::optional<StochasticRounding> stochastic,
                      device::Stream& stream) const override;
    void cross_entropy(const CrossEntropyRows& rows, float factor,
                       device::Stream& stream) const override;
};

}  // namespace fullshard::kernels
