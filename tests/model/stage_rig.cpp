#include "model/stage_rig.h"

#include "base/rng.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <limits>
#include <mutex>

namespace fullshard::model {

namespace {

std::int64_t numel(const std::vector<std::int64_t>& shape) {
    std::int64_t product = 1;
    for (const auto extent : shape) product *= extent;
    return product;
}

}  // namespace

PoisonedSink::PoisonedSink(std::span<const std::int64_t> sizes) {
    for (const auto size : sizes) gradients_.emplace_back(size);
    poison();
}

GradSink::Target PoisonedSink::open(std::int64_t index) {
    const auto i = static_cast<std::size_t>(index);
    const bool accumulate = written_.at(i);
    written_[i] = true;
    return {TypedSpan(std::span<float>(gradients_[i])), accumulate};
}

void PoisonedSink::poison() {
    for (auto& gradient : gradients_) {
        std::ranges::fill(gradient, std::numeric_limits<float>::quiet_NaN());
    }
    written_.assign(gradients_.size(), false);
}

std::vector<std::vector<std::int64_t>> parameter_shapes(const spec::SimpleTransformer& m,
                                                        std::size_t index) {
    const auto d = m.d_model;
    if (index == 0) {
        std::vector<std::vector<std::int64_t>> shapes{{m.vocab_size, d}};
        if (m.max_positions > 0) shapes.push_back({m.max_positions, d});
        return shapes;
    }
    if (index > static_cast<std::size_t>(m.num_layers)) return {{m.vocab_size, d}, {m.vocab_size}};
    return {{3 * d, d},  {3 * d}, {d, d}, {d}, {m.d_ff, d}, {m.d_ff},
            {d, m.d_ff}, {d},     {d},    {d}, {d},         {d}};
}

StageRig::StageRig(const spec::SimpleTransformer& model, std::size_t index,
                   const std::vector<std::size_t>& frozen)
    : shapes_(parameter_shapes(model, index)) {
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
        sizes.push_back(numel(shapes_[i]));
        auto& values = memory_.emplace_back(sizes.back());
        const RandomStream stream(mix(index, i));
        for (std::size_t j = 0; j < values.size(); ++j) {
            values[j] = static_cast<float>(0.3 * stream.normal(j));
        }
    }
    sink_ = std::make_unique<PoisonedSink>(sizes);
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
        at::Tensor value = tensor_view(TypedSpan(std::span<float>(memory_[i])), shapes_[i]);
        value.requires_grad_(std::ranges::find(frozen, i) == frozen.end());
        parameters_.push_back({value, sink_.get(), static_cast<std::int64_t>(i)});
    }
    stage_ = make_stage(model, index, parameters_);
}

at::Tensor StageRig::gradient(std::size_t index) {
    return tensor_view(TypedSpan(sink_->gradient(index)), shapes_[index]);
}

std::vector<at::Tensor> StageRig::copies() const {
    std::vector<at::Tensor> result;
    for (const auto& parameter : parameters_) {
        result.push_back(parameter.value.detach().clone().requires_grad_(true));
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
    for (const auto& parameter : parameters_) {
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

void seed_generator(std::uint64_t seed) {
    auto generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(seed);
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
