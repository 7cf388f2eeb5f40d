// Pointers in the context of an autograd function.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>

namespace fullshard::model {

/// Keeps the layer whose backward pass will need its sinks; the layer must outlive the graph.
template <typename Layer>
void save_layer(torch::autograd::AutogradContext& context, const Layer& layer) {
    context.saved_data["layer"] = reinterpret_cast<std::int64_t>(&layer);
}

template <typename Layer>
const Layer& saved_layer(const torch::autograd::AutogradContext& context) {
    return *reinterpret_cast<const Layer*>(context.saved_data.at("layer").toInt());
}

}  // namespace fullshard::model
