// Parameters as stages use them, and the way their gradients take.
#pragma once

#include "base/grad_sink.h"

#include <ATen/core/Tensor.h>

namespace fullshard::model {

/// A parameter as a stage uses it: a view of memory that the caller owns and fills, and the place
/// where its gradient goes. The memory may hold anything between a stage's passes; during a pass it
/// holds the parameter. Align it to 64 bytes: matrix products may round differently otherwise.
struct Parameter {
    at::Tensor value;          ///< leaf, requires_grad when trainable; storage is not the stage's
    GradSink* sink = nullptr;  ///< receives the gradient; null when gradients are never taken
    std::int64_t index = 0;    ///< the parameter's index in `sink`
};

/// A row-major tensor on foreign memory, which must outlive it. Throws LogicError when `shape` does
/// not have exactly the span's number of elements.
at::Tensor tensor_view(const TypedSpan& memory, at::IntArrayRef shape);

/// Copies or adds a gradient that autograd returned into the parameter's sink.
void store_gradient(const Parameter& parameter, const at::Tensor& gradient);

/// Where a backward pass writes the gradient of one parameter.
struct GradientTarget {
    at::Tensor gradient;  ///< view of the sink's memory in the parameter's shape
    bool accumulate;      ///< false: overwrite, the content is undefined; true: add to it
};

/// Opens the parameter's sink, which counts the gradient as written: call it only to write.
GradientTarget open_gradient(const Parameter& parameter);

}  // namespace fullshard::model
