// From the element type of a span to a C++ type.
#pragma once

#include "base/span.h"

namespace fullshard::kernels {

/// Calls `call(T*)` with the elements of a floating-point span, whose type the caller has checked.
template <typename Call>
void with_elements(TypedSpan span, const Call& call) {
    switch (span.dtype) {
        case DType::kFloat32:
            return call(span.as<float>().data());
        case DType::kBFloat16:
            return call(span.as<BFloat16>().data());
        case DType::kFloat16:
            return call(span.as<Float16>().data());
        case DType::kInt64:
            break;
    }
}

}  // namespace fullshard::kernels
