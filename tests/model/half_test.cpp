// Stages in bf16 and fp16 against themselves in fp32, on the same rounded numbers.
#include "model/gpt2.h"
#include "model/head.h"
#include "model/llama.h"
#include "model/stage_rig.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace fullshard::model {
namespace {

constexpr std::int64_t kBatch = 3, kSequence = 24, kVocabulary = 40, kWidth = 32;

spec::SimpleTransformer small_model() {
    spec::SimpleTransformer model;
    model.vocab_size = kVocabulary;
    model.d_model = kWidth;
    model.num_heads = 4;
    model.num_layers = 1;
    model.d_ff = 64;
    model.max_positions = kSequence + 3;
    model.activation = spec::Activation::kGelu;
    model.norm_first = true;
    model.dropout = 0.2;
    return model;
}

std::shared_ptr<const Model> small_gpt2() {
    return make_gpt2({.vocab_size = kVocabulary,
                      .padded_vocab_size = 48,
                      .max_positions = kSequence + 3,
                      .d_model = kWidth,
                      .num_heads = 4,
                      .num_layers = 1,
                      .d_ff = 64,
                      .dropout = 0.2});
}

std::shared_ptr<const Model> small_llama() {
    return make_llama({.vocab_size = kVocabulary,
                       .padded_vocab_size = 48,
                       .d_model = kWidth,
                       .num_heads = 4,
                       .num_kv_heads = 2,
                       .head_size = 8,
                       .num_layers = 1,
                       .d_ff = 64});
}

MicroBatch small_batch() {
    MicroBatch batch;
    batch.tokens = random_classes({kBatch, kSequence}, kVocabulary, 1);
    batch.targets = random_classes({kBatch, kSequence}, kVocabulary, 2);
    batch.targets.select(1, 0).fill_(MicroBatch::kIgnoredTarget);
    batch.loss_factor = 0.05;
    return batch;
}

struct Result {
    at::Tensor out, grad_x;
    std::vector<at::Tensor> gradients;
};

/// Forward and backward of stage `index` (of the loss for the last) with parameters, input and
/// incoming gradient that are numbers of type `rounded`; `passes` times into one sink.
Result run(const std::shared_ptr<const Model>& model, std::size_t index, DType rounded,
           DType compute, DType sink, int passes = 1) {
    StageRig rig(model, index, {.compute = compute, .sink = sink});
    StageRig source(model, index, {.compute = rounded});
    for (std::size_t i = 0; i < rig.size(); ++i) rig.memory(i).copy_(source.memory(i));
    const auto type = scalar_type(compute);
    const auto input = [&](std::uint64_t seed) {
        return random_tensor({kBatch, kSequence, kWidth}, seed).to(scalar_type(rounded)).to(type);
    };
    const MicroBatch batch = small_batch();
    Result result;
    for (int pass = 0; pass < passes; ++pass) {
        const at::Tensor x = index == 0 ? at::Tensor() : input(3).requires_grad_(true);
        seed_generator(7);
        result.out = index == 2 ? rig.head().loss(x, batch) : rig.stage().forward(x, batch);
        const at::Tensor grad_out = index == 2 ? at::scalar_tensor(1.0) : input(4);
        result.grad_x = rig.backward(result.out, x, grad_out);
    }
    for (std::size_t i = 0; i < rig.size(); ++i) result.gradients.push_back(rig.gradient(i));
    return result;
}

/// ||actual - expected|| <= tolerance ||expected||.
void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
    const double norm = expected.to(at::kDouble).norm().item<double>();
    const double error = (actual.to(at::kDouble) - expected).norm().item<double>();
    EXPECT_TRUE(error <= tolerance * norm) << what << ": " << error / norm;  // false for NaN
}

struct Family {
    std::string name;
    std::shared_ptr<const Model> model;
};

class HalfStage : public testing::TestWithParam<std::tuple<Family, std::size_t, DType>> {
  protected:
    const std::shared_ptr<const Model>& model() const { return std::get<0>(GetParam()).model; }
    std::size_t index() const { return std::get<1>(GetParam()); }
    DType half_type() const { return std::get<2>(GetParam()); }
    /// A few roundings to 8 or 11 bits in a row.
    double tolerance() const { return half_type() == DType::kBFloat16 ? 2e-2 : 2.5e-3; }

    void compare(const Result& actual, const Result& expected) const {
        expect_near(actual.out, expected.out, tolerance(), "output");
        if (index() > 0) expect_near(actual.grad_x, expected.grad_x, tolerance(), "input");
        for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
            expect_near(actual.gradients[i], expected.gradients[i], tolerance(),
                        "parameter " + std::to_string(i));
        }
    }
};

TEST_P(HalfStage, IsCloseToFp32) {
    const Result half = run(model(), index(), half_type(), half_type(), half_type());
    EXPECT_EQ(half.out.scalar_type(), index() == 2 ? at::kFloat : scalar_type(half_type()));
    compare(half, run(model(), index(), half_type(), DType::kFloat32, DType::kFloat32));
}

TEST_P(HalfStage, WritesIntoAnFp32Sink) {
    compare(run(model(), index(), half_type(), half_type(), DType::kFloat32),
            run(model(), index(), half_type(), DType::kFloat32, DType::kFloat32));
}

TEST_P(HalfStage, AddsToTheGradientsOfASink) {
    for (const DType sink : {half_type(), DType::kFloat32}) {
        compare(run(model(), index(), half_type(), half_type(), sink, 2),
                run(model(), index(), half_type(), DType::kFloat32, DType::kFloat32, 2));
    }
}

// Sums over rows, tokens and chunks of the vocabulary are in fp32, so that nothing but this one
// rounding separates the two.
TEST_P(HalfStage, RoundsAGradientOnceIntoANarrowSink) {
    const Result narrow = run(model(), index(), half_type(), half_type(), half_type());
    const Result wide = run(model(), index(), half_type(), half_type(), DType::kFloat32);
    for (std::size_t i = 0; i < wide.gradients.size(); ++i) {
        EXPECT_TRUE(narrow.gradients[i].equal(wide.gradients[i].to(scalar_type(half_type())))) << i;
    }
}

std::string half_name(const testing::TestParamInfo<HalfStage::ParamType>& entry) {
    const auto& [family, index, type] = entry.param;
    return family.name + "_" + std::string(name_of(type)) + "_stage" + std::to_string(index);
}

INSTANTIATE_TEST_SUITE_P(
    Stages, HalfStage,
    testing::Combine(testing::Values(Family{"simple", make_simple_transformer(small_model())},
                                     Family{"gpt2", small_gpt2()}, Family{"llama", small_llama()}),
                     testing::Values(0, 1, 2), testing::Values(DType::kBFloat16, DType::kFloat16)),
    half_name);

TEST(HalfLayer, PostNormAndReluAreCloseToFp32Too) {
    auto model = small_model();
    model.norm_first = false;
    model.activation = spec::Activation::kRelu;
    const auto family = make_simple_transformer(model);
    const Result half = run(family, 1, DType::kBFloat16, DType::kBFloat16, DType::kBFloat16);
    const Result full = run(family, 1, DType::kBFloat16, DType::kFloat32, DType::kFloat32);
    expect_near(half.out, full.out, 2e-2, "output");
    for (std::size_t i = 0; i < full.gradients.size(); ++i) {
        // Rounding also moves a few hidden values across ReLU's kink.
        expect_near(half.gradients[i], full.gradients[i], 5e-2, "parameter " + std::to_string(i));
    }
}

// The library's own layer norm sums them in the input's type: 4 % off over a thousand rows.
TEST(HalfLayer, NormsSumTheirGradientsOverRowsInFp32) {
    auto model = small_model();
    model.norm_first = false;
    StageRig rig(model, 1, {.compute = DType::kBFloat16});
    const at::Tensor x = random_tensor({64, kSequence, model.d_model}, 3).to(at::kBFloat16);
    const at::Tensor grad_out = random_tensor(x.sizes(), 4).to(at::kBFloat16);
    rig.backward(rig.stage().forward(x, {}), {}, grad_out);
    const at::Tensor expected = grad_out.to(at::kDouble).flatten(0, 1).sum(0);
    expect_near(rig.gradient(11), expected, 1e-5, "bias of norm2");
}

TEST(HalfEmbedding, CountsAllOccurrencesOfAFrequentToken) {
    auto model = small_model();
    model.max_positions = 0;
    StageRig rig(model, 0, {.compute = DType::kBFloat16, .sink = DType::kBFloat16});
    MicroBatch batch;
    batch.tokens = at::zeros({1, 1024}, at::kLong);
    const at::Tensor out = rig.stage().forward({}, batch);
    // A bf16 sum of ones stops at 256.
    rig.backward(out, {}, at::ones(out.sizes(), at::kBFloat16));
    EXPECT_TRUE(rig.gradient(0)[0].eq(1024).all().item<bool>());
}

TEST(HalfHead, ChunksOfRowsLoseNoBits) {
    auto model = small_model();
    model.vocab_size = 16384;
    model.d_model = 8;
    const std::int64_t rows = 8 * loss_chunk_rows(model.vocab_size);
    const auto gradient = [&](DType sink) {
        StageRig rig(model, 2, {.compute = DType::kBFloat16, .sink = sink});
        const at::Tensor x = random_tensor({1, rows, model.d_model}, 1).to(at::kBFloat16);
        MicroBatch batch;
        batch.targets = random_classes({1, rows}, model.vocab_size, 2);
        rig.backward(rig.head().loss(x, batch), {}, at::scalar_tensor(1.0));
        return std::pair(rig.gradient(0), rig.gradient(1));
    };
    const auto narrow = gradient(DType::kBFloat16), wide = gradient(DType::kFloat32);
    EXPECT_TRUE(narrow.first.equal(wide.first.to(at::kBFloat16)));
    EXPECT_TRUE(narrow.second.equal(wide.second.to(at::kBFloat16)));
}

TEST(HalfHead, ALossScaleKeepsSmallFp16GradientsAlive) {
    auto model = small_model();
    const auto grad_x = [&](double scale, DType compute) {
        StageRig rig(model, 2, {.compute = compute, .sink = compute});
        MicroBatch batch = small_batch();
        batch.loss_factor = 1e-7;
        batch.loss_scale = scale;
        const at::Tensor x = random_tensor({kBatch, kSequence, model.d_model}, 3)
                                 .to(scalar_type(compute))
                                 .requires_grad_(true);
        return rig.backward(rig.head().loss(x, batch), x, at::scalar_tensor(scale));
    };
    const at::Tensor expected = 65536 * grad_x(1, DType::kFloat32);
    expect_near(grad_x(65536, DType::kFloat16), expected, 5e-3, "scaled");
    EXPECT_GT((65536 * grad_x(1, DType::kFloat16).to(at::kFloat) - expected).norm().item<double>(),
              0.05 * expected.norm().item<double>());
}

TEST(TiedHead, AddsItsWeightGradientToTheEmbeddings) {
    auto model = small_model();
    model.tie_embeddings = true;
    model.max_positions = 0;
    const auto family = make_simple_transformer(model);
    const at::Tensor table = (0.3 * random_tensor({model.vocab_size, model.d_model}, 5));
    const std::vector<std::int64_t> sizes{table.numel(), model.vocab_size};
    PoisonedSink sink(sizes, DType::kFloat32);
    const auto view = [](const at::Tensor& t) { return t.detach().requires_grad_(true); };
    const at::Tensor bias = at::zeros({model.vocab_size});
    const auto embedding = family->make_stage(0, {{view(table), &sink, 0}}, test_gemm());
    const auto stage =
        family->make_stage(2, {{view(table), &sink, 0}, {view(bias), &sink, 1}}, test_gemm());
    auto& head = dynamic_cast<HeadStage&>(*stage);

    const MicroBatch batch = small_batch();
    const at::Tensor hidden = embedding->forward({}, batch);
    const at::Tensor x = hidden.detach().requires_grad_(true);
    const auto differentiate = [](const at::Tensor& out, const Stage& of, const at::Tensor& input,
                                  const at::Tensor& grad) {
        torch::autograd::variable_list inputs;
        for (const auto& parameter : of.parameters()) inputs.push_back(parameter.value);
        if (input.defined()) inputs.push_back(input);
        return torch::autograd::grad({out}, inputs, {grad}, false, false, true).back();
    };
    const at::Tensor grad_x = differentiate(head.loss(x, batch), head, x, at::scalar_tensor(1.0));
    const at::Tensor of_head = sink.gradient(0).clone();
    differentiate(hidden, *embedding, {}, grad_x);

    PoisonedSink alone(sizes, DType::kFloat32);
    const auto untied = family->make_stage(0, {{view(table), &alone, 0}}, test_gemm());
    differentiate(untied->forward({}, batch), *untied, {}, grad_x);
    expect_close(sink.gradient(0), of_head + alone.gradient(0), 1e-6, "sum of both");
    EXPECT_GT(of_head.abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace fullshard::model
