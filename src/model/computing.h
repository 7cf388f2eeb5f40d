// Who computes what a stage leaves to others than LibTorch.
#pragma once

#include "device/device.h"
#include "kernels/gemm.h"
#include "kernels/stream_kernels.h"

#include <optional>

namespace fullshard::model {

/// LibTorch computes on the stream too, which is the device's default one.
struct OnDevice {
    const kernels::StreamKernels& kernels;
    device::Stream& stream;
};

/// What it refers to outlives the stages.
struct Computing {
    const kernels::Gemm& gemm;  ///< multiplies fp32 matrices of the CPU
    /// Computes losses; none on the CPU.
    std::optional<OnDevice> device = std::nullopt;

    // NOLINTNEXTLINE(google-explicit-constructor): a library alone computes on the CPU
    Computing(const kernels::Gemm& library, std::optional<OnDevice> on = std::nullopt)
        : gemm(library), device(on) {}
};

}  // namespace fullshard::model
