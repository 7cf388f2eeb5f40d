// Casts of raw elements, for kernels that work through memory block by block. The types are those
// of kernels/cast.h, which says how values are rounded; another one is a LogicError.
#pragma once

#include "base/span.h"

#include <cstddef>

namespace fullshard::kernels {

/// out[i] = element i of `source`.
void widen_block(const std::byte* source, DType source_type, float* out, std::size_t count);

/// Element i of `out` = source[i], rounded.
void narrow_block(const float* source, std::byte* out, DType out_type, std::size_t count);

}  // namespace fullshard::kernels
