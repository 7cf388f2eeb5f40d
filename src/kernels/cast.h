// Casts between the element types of parameters, activations and gradients, on host memory.
#pragma once

#include "base/span.h"

#include <span>

namespace fullshard::kernels {

// Types are fp32, bf16 and fp16; other ones, and unequal counts, are LogicErrors. Source and
// destination do not overlap, unless they are the very same memory and their elements of one size.
// Nothing is allocated. How single values are rounded: kernels/half_float.h.

/// out[i] = source[i], exactly. A source of fp32 is copied.
void widen(TypedSpan source, std::span<float> out);

/// out[i] = source[i] rounded to the nearest value of out's type, ties to even: values beyond the
/// largest one become infinity, NaN stays NaN. An `out` of fp32 is a copy.
void narrow(std::span<const float> source, TypedSpan out);

/// Any type to any type, rounded once.
void convert(TypedSpan source, TypedSpan out);

}  // namespace fullshard::kernels
