#include "model/stage.h"

#include "base/error.h"
#include "model/parameter_list.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tril.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <numeric>

namespace fullshard::model {

at::ScalarType scalar_type(DType dtype) {
    switch (dtype) {
        case DType::kFloat32:
            return at::kFloat;
        case DType::kBFloat16:
            return at::kBFloat16;
        case DType::kFloat16:
            return at::kHalf;
        case DType::kInt64:
            break;
    }
    return at::kLong;
}

at::Tensor tensor_view(const TypedSpan& memory, at::IntArrayRef shape) {
    ensure(memory.count ==
               std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()),
           "a tensor on foreign memory has as many elements as the memory");
    return at::from_blob(
        memory.data, shape,
        at::TensorOptions(memory.device == DeviceKind::kHost ? at::kCPU : at::kCUDA)
            .dtype(scalar_type(memory.dtype)));
}

void GradientTarget::write(const at::Tensor& value) const {
    if (accumulate) {
        gradient.add_(value);
    } else {
        gradient.copy_(value);
    }
}

GradientTarget open_gradient(const Parameter& parameter) {
    ensure(parameter.sink != nullptr, "a parameter whose gradient is taken has a sink");
    const GradSink::Target target = parameter.sink->open(parameter.index);
    return {tensor_view(target.memory, parameter.value.sizes()), target.accumulate};
}

void store_gradient(const Parameter& parameter, const at::Tensor& gradient) {
    open_gradient(parameter).write(gradient);
}

Parameter ParameterList::take(std::initializer_list<std::int64_t> shape) {
    ensure(!empty(), "a stage gets all its parameters");
    const Parameter& parameter = parameters_[next_++];
    ensure(parameter.value.is_leaf() && parameter.value.sizes() == at::IntArrayRef(shape),
           "parameters of a stage are leaves in the order and the shapes of its spec");
    return parameter;
}

at::Tensor document_mask(const at::Tensor& documents, bool causal) {
    const at::Tensor same = documents.unsqueeze(2).eq(documents.unsqueeze(1));
    return (causal ? same.tril() : same).unsqueeze(1);
}

at::Tensor HeadStage::logits_at(const at::Tensor& x, const MicroBatch& batch,
                                const at::Tensor& rows) {
    return logits(x, batch).flatten(0, 1).index_select(0, rows);
}

void seed_generator(std::uint64_t seed, at::Device device) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
}

}  // namespace fullshard::model
