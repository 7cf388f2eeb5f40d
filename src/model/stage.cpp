#include "model/stage.h"

#include "base/error.h"
#include "model/simple_transformer.h"

#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>

namespace fullshard::model {

at::Tensor tensor_view(const TypedSpan& memory, at::IntArrayRef shape) {
    ensure(memory.count ==
               std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()),
           "a tensor on foreign memory has as many elements as the memory");
    return at::from_blob(
        memory.data, shape,
        at::TensorOptions(memory.device == DeviceKind::kHost ? at::kCPU : at::kCUDA)
            .dtype(memory.dtype == DType::kFloat32 ? at::kFloat : at::kLong));
}

GradientTarget open_gradient(const Parameter& parameter) {
    ensure(parameter.sink != nullptr, "a parameter whose gradient is taken has a sink");
    const GradSink::Target target = parameter.sink->open(parameter.index);
    return {tensor_view(target.memory, parameter.value.sizes()), target.accumulate};
}

void store_gradient(const Parameter& parameter, const at::Tensor& gradient) {
    const GradientTarget target = open_gradient(parameter);
    if (target.accumulate) {
        target.gradient.add_(gradient);
    } else {
        target.gradient.copy_(gradient);
    }
}

Parameter ParameterList::take(std::initializer_list<std::int64_t> shape) {
    ensure(!empty(), "a stage gets all its parameters");
    Parameter parameter = std::move(parameters_[next_++]);
    ensure(parameter.value.is_leaf() && parameter.value.sizes() == at::IntArrayRef(shape),
           "parameters of a stage are leaves in the order and the shapes of its spec");
    return parameter;
}

std::unique_ptr<Stage> make_stage(const spec::SimpleTransformer& model, std::size_t index,
                                  std::vector<Parameter> parameters) {
    const auto layers = static_cast<std::size_t>(model.num_layers);
    ensure(index < layers + 2, "a model has an embedding, its layers and a head");
    ensure(model.dropout >= 0 && model.dropout < 1, "the dropout probability lies in [0, 1)");
    ParameterList list(std::move(parameters));
    std::unique_ptr<Stage> stage;
    if (index == 0) {
        stage = make_embedding(model, list);
    } else if (index <= layers) {
        stage = make_encoder_layer(model, list);
    } else {
        stage = make_head(model, list);
    }
    ensure(list.empty(), "a stage gets no parameters but its own");
    return stage;
}

}  // namespace fullshard::model
