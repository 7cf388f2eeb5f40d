// What StreamKernels asks of its operands; every implementation checks it before it enqueues.
#pragma once

#include "kernels/stream_kernels.h"

#include <optional>

namespace fullshard::kernels {

// Each throws LogicError where an operand does not fit. `device` is where operands must lie.

void check_convert(TypedSpan from, TypedSpan to, DeviceKind device);
void check_accumulate(TypedSpan from, TypedSpan sum, DeviceKind device);
void check_scale(TypedSpan values, DeviceKind device);
void check_square_sum(TypedSpan values, TypedSpan bins, DeviceKind device);
void check_adamw_update(const AdamWMemory& memory,
                        const std::optional<StochasticRounding>& stochastic, DeviceKind device);
void check_cross_entropy(const CrossEntropyRows& rows, DeviceKind device);

}  // namespace fullshard::kernels
