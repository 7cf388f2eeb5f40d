// Parameters as stages use them, and the way their gradients take.
#pragma once

#include "base/grad_sink.h"

#include <ATen/core/Tensor.h>

namespace fullshard::model {

/// A parameter as a stage uses it: a view of memory that the caller owns and fills, and the place
/// where its gradient goes. The memory may hold anything between a stage's passes; during a pass it
/// holds the parameter. Align it to 64 bytes: matrix products may round differently otherwise.
struct Parameter {
    /// Leaf of the compute type (fp32, bf16 or fp16), requires_grad when trainable; its storage is
    /// not the stage's.
    at::Tensor value;
    GradSink* sink = nullptr;  ///< receives the gradient; null when gradients are never taken
    std::int64_t index = 0;    ///< the parameter's index in `sink`
};

at::ScalarType scalar_type(DType dtype);

/// A row-major tensor on foreign memory, which must outlive it. Throws LogicError when `shape` does
/// not have exactly the span's number of elements.
at::Tensor tensor_view(const TypedSpan& memory, at::IntArrayRef shape);

/// Where a backward pass writes the gradient of one parameter.
struct GradientTarget {
    /// View of the sink's memory in the parameter's shape. Its type is the sink's: fp32 or the
    /// parameter's.
    at::Tensor gradient;
    bool accumulate = false;  ///< false: overwrite, the content is undefined; true: add to it

    /// Copies or adds `value`, of any float type, rounding once.
    void write(const at::Tensor& value) const;
};

/// Opens the parameter's sink, which counts the gradient as written: call it only to write.
GradientTarget open_gradient(const Parameter& parameter);

/// Copies or adds a gradient that autograd returned into the parameter's sink.
void store_gradient(const Parameter& parameter, const at::Tensor& gradient);

}  // namespace fullshard::model
