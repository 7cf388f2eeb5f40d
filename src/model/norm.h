// Norms over the last dimension, in fp32 between input and output of the compute type.
#pragma once

#include "model/parameter.h"
#include "model/parameter_list.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <variant>

namespace fullshard::model {

/// (x - mean) / sqrt(variance + epsilon) * weight + bias.
struct LayerNorm {
    Parameter weight;  ///< [d_model]
    Parameter bias;    ///< [d_model]
    double epsilon;

    /// [rows, d_model] to the same shape.
    at::Tensor forward(const at::Tensor& x) const;
};

/// x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich, 2019). As in transformers, the
/// normalised x is rounded to the compute type before it is multiplied by the weight.
struct RmsNorm {
    Parameter weight;  ///< [d_model]
    double epsilon;

    at::Tensor forward(const at::Tensor& x) const;
};

using Norm = std::variant<LayerNorm, RmsNorm>;

at::Tensor normalise(const Norm& norm, const at::Tensor& x);

/// A layer norm whose bias follows its weight in the spec.
LayerNorm take_layer_norm(ParameterList& parameters, std::int64_t size, double epsilon);
RmsNorm take_rms_norm(ParameterList& parameters, std::int64_t size, double epsilon);

}  // namespace fullshard::model
