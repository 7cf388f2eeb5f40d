// Launches of the CUDA kernels. Operands are checked by the caller; so is cudaGetLastError().
#pragma once

#include "kernels/stream_kernels.h"

#include <cuda_runtime.h>

#include <optional>

namespace fullshard::kernels {

/// Where and how wide.
struct Launch {
    cudaStream_t stream = nullptr;
    int multiprocessors = 0;  ///< of the device
};

// Each does what the function of its name in StreamKernels does, and nothing for empty operands.

void launch_convert(TypedSpan from, TypedSpan to, const Launch& launch);
void launch_accumulate(TypedSpan from, TypedSpan sum, const Launch& launch);
void launch_scale(TypedSpan values, float factor, const Launch& launch);
void launch_square_sum(TypedSpan values, TypedSpan bins, const Launch& launch);
void launch_adamw_update(const AdamWMemory& memory, const AdamWScalars& scalars,
                         const std::optional<StochasticRounding>& stochastic, const Launch& launch);
void launch_cross_entropy(const CrossEntropyRows& rows, float factor, const Launch& launch);

}  // namespace fullshard::kernels
