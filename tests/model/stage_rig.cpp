#include "model/stage_rig.h"

#include "base/rng.h"
#include "model/libtorch_gemm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

namespace fullshard::model {

namespace {

TypedSpan span_of(const at::Tensor& tensor, DType type) {
    TypedSpan memory;
    memory.data = static_cast<std::byte*>(tensor.data_ptr());
    memory.count = tensor.numel();
    memory.dtype = type;
    return memory;
}

}  // namespace

const kernels::Gemm& test_gemm() {
    static const std::unique_ptr<const kernels::Gemm> gemm = [] {
        const char* const wanted = std::getenv("FULLSHARD_TEST_GEMM");
        if (wanted == nullptr || std::string_view(wanted) != "libtorch") {
            if (auto offer = kernels::load_onednn(/*threads=*/1); offer.gemm)
                return std::move(offer.gemm);
        }
        return make_libtorch_gemm(/*threads=*/1);
    }();
    return *gemm;
}

PoisonedSink::PoisonedSink(std::span<const std::int64_t> sizes, DType type) : type_(type) {
    for (const auto size : sizes) gradients_.push_back(at::empty({size}, scalar_type(type)));
    poison();
}

GradSink::Target PoisonedSink::open(std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const bool accumulate = written_.at(i);
    written_[i] = true;
    return {span_of(gradients_[i], type_), accumulate};
}

void PoisonedSink::poison() {
    for (auto& gradient : gradients_) gradient.fill_(std::numeric_limits<float>::quiet_NaN());
    written_.assign(gradients_.size(), false);
}

StageRig::StageRig(std::shared_ptr<const Model> model, std::size_t index, const RigOptions& options)
    : model_(std::move(model)) {
    const auto& specs = model_->spec().stages.at(index).parameters;
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < specs.size(); ++i) {
        sizes.push_back(specs[i].numel());
        const at::Tensor values = 0.3 * random_tensor(specs[i].shape, mix(index, i));
        memory_.push_back(values.to(scalar_type(options.compute)));
    }
    sink_ = std::make_unique<PoisonedSink>(sizes, options.sink);
    std::vector<Parameter> parameters;
    for (std::size_t i = 0; i < specs.size(); ++i) {
        at::Tensor value = tensor_view(span_of(memory_[i], options.compute), specs[i].shape);
        value.requires_grad_(std::ranges::find(options.frozen, i) == options.frozen.end());
        parameters.push_back({value, sink_.get(), static_cast<std::int64_t>(i)});
    }
    stage_ = model_->make_stage(index, parameters, test_gemm());
}

at::Tensor StageRig::gradient(std::size_t index) {
    return sink_->gradient(index).view_as(memory_[index]);
}

std::vector<at::Tensor> StageRig::copies() const {
    std::vector<at::Tensor> result;
    for (const auto& values : memory_) {
        result.push_back(
            values.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).requires_grad_(true));
    }
    return result;
}

at::Tensor StageRig::backward(const at::Tensor& out, const at::Tensor& x,
                              const at::Tensor& grad_out) {
    std::vector<at::Tensor> inputs;
    std::vector<const Parameter*> owners;
    if (x.defined() && x.requires_grad()) {
        inputs.push_back(x);
        owners.push_back(nullptr);
    }
    for (const auto& parameter : stage_->parameters()) {
        if (!parameter.value.requires_grad()) continue;
        inputs.push_back(parameter.value);
        owners.push_back(&parameter);
    }
    const auto gradients = torch::autograd::grad({out}, inputs, {grad_out}, /*retain_graph=*/false,
                                                 /*create_graph=*/false, /*allow_unused=*/true);
    at::Tensor grad_x;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
        if (!gradients[i].defined()) continue;
        if (owners[i] == nullptr) {
            grad_x = gradients[i];
        } else {
            store_gradient(*owners[i], gradients[i]);
        }
    }
    return grad_x;
}

at::Tensor random_tensor(at::IntArrayRef shape, std::uint64_t seed) {
    at::Tensor result = at::empty(shape, at::kFloat);
    const RandomStream stream(seed);
    for (std::int64_t i = 0; i < result.numel(); ++i) {
        result.mutable_data_ptr<float>()[i] = static_cast<float>(stream.normal(i));
    }
    return result;
}

at::Tensor random_classes(at::IntArrayRef shape, std::int64_t bound, std::uint64_t seed) {
    at::Tensor result = at::empty(shape, at::kLong);
    const RandomStream stream(seed);
    for (std::int64_t i = 0; i < result.numel(); ++i) {
        const auto value = static_cast<std::int64_t>(stream.below(i, bound));
        result.mutable_data_ptr<std::int64_t>()[i] = value;
    }
    return result;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                  const std::string& what) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
    const double scale = std::max(1.0, expected.abs().max().item<double>());
    const double difference = (actual - expected).abs().max().item<double>();
    // Written so that a NaN fails.
    EXPECT_TRUE(difference <= tolerance * scale) << what << " differs by " << difference;
}

}  // namespace fullshard::model
