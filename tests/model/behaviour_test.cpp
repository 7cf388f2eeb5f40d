// What a training engine relies on: masking, dropout, permanent views, reproducible bits.
#include "base/error.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "model/stage_rig.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::model {
namespace {

constexpr std::int64_t kBatch = 2, kSequence = 16;

spec::SimpleTransformer model_with_dropout(double dropout) {
    spec::SimpleTransformer model;
    model.vocab_size = 13;
    model.d_model = 16;
    model.num_heads = 4;
    model.num_layers = 1;
    model.d_ff = 32;
    model.dropout = dropout;
    return model;
}

at::Tensor layer_input(const spec::SimpleTransformer& model) {
    return random_tensor({kBatch, kSequence, model.d_model}, 3).requires_grad_(true);
}

/// The first half of a layer's output where the second half of its input is replaced.
at::Tensor past_output(bool causal, bool replace_future) {
    auto model = model_with_dropout(0);
    model.causal = causal;
    StageRig rig(model, 1);
    at::Tensor x = layer_input(model).detach();
    if (replace_future) x.narrow(1, kSequence / 2, kSequence / 2).fill_(7.0);
    const at::NoGradGuard no_grad;
    return rig.stage().forward(x, {}).narrow(1, 0, kSequence / 2);
}

TEST(CausalAttention, DoesNotSeeTheFuture) {
    EXPECT_TRUE(past_output(true, false).equal(past_output(true, true)));
}

TEST(BidirectionalAttention, SeesTheFuture) {
    EXPECT_FALSE(past_output(false, false).allclose(past_output(false, true)));
}

at::Tensor run_layer(double dropout, bool training, std::uint64_t seed) {
    const auto model = model_with_dropout(dropout);
    StageRig rig(model, 1);
    MicroBatch batch;
    batch.training = training;
    seed_generator(seed);
    return rig.stage().forward(layer_input(model), batch).detach();
}

TEST(Dropout, IsOffInEvaluation) {
    EXPECT_TRUE(run_layer(0.3, false, 1).equal(run_layer(0.0, true, 2)));
}

TEST(Dropout, IsAFunctionOfTheSeed) {
    EXPECT_TRUE(run_layer(0.3, true, 1).equal(run_layer(0.3, true, 1)));
    EXPECT_FALSE(run_layer(0.3, true, 1).allclose(run_layer(0.3, true, 2)));
}

TEST(PermanentViews, SeeNewValuesBetweenPasses) {
    const auto model = model_with_dropout(0);
    StageRig rig(model, 1);
    const at::Tensor x = layer_input(model);
    const at::Tensor before = rig.stage().forward(x, {});
    rig.backward(before, x, before.detach());
    for (std::size_t i = 0; i < rig.size(); ++i) {
        rig.memory(i).mul_(1.5);
    }
    rig.sink().poison();
    const at::Tensor after = rig.stage().forward(x, {});
    EXPECT_FALSE(after.allclose(before));
    EXPECT_FALSE(rig.backward(after, x, after.detach()).isnan().any().item<bool>());
    for (std::size_t i = 0; i < rig.size(); ++i) {
        EXPECT_FALSE(rig.gradient(i).isnan().any().item<bool>()) << i;
    }
}

struct Gradients {
    at::Tensor x;
    std::vector<at::Tensor> parameters;
};

struct AnyCase {
    std::string family;
    std::shared_ptr<const Model> model;
    std::size_t index;
};

constexpr std::int64_t kVocabulary = 13, kWidth = 16;

std::vector<AnyCase> any_cases() {
    auto simple = model_with_dropout(0.2);
    simple.max_positions = kSequence;
    const spec::Gpt2 gpt2{.vocab_size = kVocabulary,
                          .padded_vocab_size = 16,
                          .max_positions = kSequence,
                          .d_model = kWidth,
                          .num_heads = 4,
                          .num_layers = 1,
                          .d_ff = 32,
                          .dropout = 0.2};
    const spec::Llama llama{.vocab_size = kVocabulary,
                            .padded_vocab_size = 16,
                            .d_model = kWidth,
                            .num_heads = 4,
                            .num_kv_heads = 2,
                            .head_size = 4,
                            .num_layers = 1,
                            .d_ff = 32};
    std::vector<AnyCase> cases;
    for (const std::size_t index : {0, 1, 2}) {
        cases.push_back({"simple", make_simple_transformer(simple), index});
        cases.push_back({"gpt2", make_gpt2(gpt2), index});
        cases.push_back({"llama", make_llama(llama), index});
    }
    return cases;
}

at::Tensor stage_input() {
    return random_tensor({kBatch, kSequence, kWidth}, 3).requires_grad_(true);
}

MicroBatch stage_batch() {
    MicroBatch batch;
    batch.loss_scale = 0.75;
    batch.tokens = random_classes({kBatch, kSequence}, kVocabulary, 1);
    batch.targets = random_classes({kBatch, kSequence}, kVocabulary, 2);
    return batch;
}

/// Forward and backward of a stage; between the two its parameters are garbage if asked.
Gradients differentiate(const AnyCase& c, bool lose_parameters_between) {
    StageRig rig(c.model, c.index);
    const MicroBatch batch = stage_batch();
    const at::Tensor x = c.index == 0 ? at::Tensor() : stage_input();
    seed_generator(9);
    const at::Tensor out = c.index == 2 ? rig.head().loss(x, batch) : rig.stage().forward(x, batch);

    if (lose_parameters_between) {
        for (std::size_t i = 0; i < rig.size(); ++i) {
            const at::Tensor kept = rig.memory(i).clone();
            rig.memory(i).fill_(std::numeric_limits<float>::quiet_NaN());
            rig.memory(i).copy_(kept);
        }
    }
    Gradients result;
    result.x = rig.backward(
        out, x, c.index == 2 ? at::scalar_tensor(batch.loss_scale) : random_tensor(out.sizes(), 4));
    for (std::size_t i = 0; i < rig.size(); ++i) {
        result.parameters.push_back(rig.gradient(i).clone());
    }
    return result;
}

void expect_equal_bits(const Gradients& a, const Gradients& b) {
    ASSERT_EQ(a.x.defined(), b.x.defined());
    EXPECT_TRUE(!a.x.defined() || a.x.equal(b.x));
    for (std::size_t i = 0; i < a.parameters.size(); ++i) {
        EXPECT_TRUE(a.parameters[i].equal(b.parameters[i])) << i;
    }
}

class AnyStage : public testing::TestWithParam<AnyCase> {};

TEST_P(AnyStage, SurvivesGarbageInItsMemoryBetweenForwardAndBackward) {
    expect_equal_bits(differentiate(GetParam(), true), differentiate(GetParam(), false));
}

TEST_P(AnyStage, RepeatsItsBitsWhateverRanBefore) {
    const Gradients first = differentiate(GetParam(), false);
    for (const AnyCase& other : any_cases()) differentiate(other, false);
    const at::Tensor other_heap_layout = at::zeros({12345});
    expect_equal_bits(differentiate(GetParam(), false), first);
}

// What activation checkpointing relies on.
TEST_P(AnyStage, HasTheSameBitsWithoutAGraph) {
    const auto& [family, model, index] = GetParam();
    const MicroBatch batch = stage_batch();
    for (const DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
        StageRig rig(model, index, {.compute = compute});
        at::Tensor x;
        if (index > 0) x = stage_input().detach().to(scalar_type(compute));
        const auto run = [&, last = index == 2](bool graph) {
            const at::AutoGradMode mode(graph);
            seed_generator(9);
            return last ? rig.head().loss(x, batch) : rig.stage().forward(x, batch);
        };
        const at::Tensor with = run(true), without = run(false);
        EXPECT_TRUE(with.requires_grad() && !without.requires_grad());
        EXPECT_TRUE(with.equal(without)) << name_of(compute);
    }
}

// The gradient of padding rows is zero, so that a step leaves them as they are.
TEST_P(AnyStage, GivesPaddingRowsAGradientOfZero) {
    const auto& parameters = GetParam().model->spec().stages[GetParam().index].parameters;
    const Gradients gradients = differentiate(GetParam(), false);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const std::int64_t padding = parameters[i].padding_rows;
        const at::Tensor& gradient = gradients.parameters[i];
        const std::int64_t used = gradient.size(0) - padding;
        EXPECT_TRUE(gradient.narrow(0, used, padding).eq(0).all().item<bool>());
        EXPECT_TRUE(gradient.narrow(0, 0, used).ne(0).any().item<bool>());
    }
}

INSTANTIATE_TEST_SUITE_P(Stages, AnyStage, testing::ValuesIn(any_cases()), [](const auto& entry) {
    return entry.param.family + "_stage" + std::to_string(entry.param.index);
});

TEST(Head, LogitsOfSomeTokensAreThoseOfAllThere) {
    const at::NoGradGuard no_grad;
    const at::Tensor x = stage_input().detach();
    const at::Tensor rows = at::arange(1, kBatch * kSequence, 5);
    for (const AnyCase& c : any_cases()) {
        if (c.index != 2) continue;
        StageRig rig(c.model, 2);
        const at::Tensor some = rig.head().logits_at(x, {}, rows);
        EXPECT_EQ(some.sizes(), at::IntArrayRef({rows.size(0), kVocabulary}));
        expect_close(some, rig.head().logits(x, {}).flatten(0, 1).index_select(0, rows), 1e-6,
                     c.family);
    }
}

TEST(Embedding, RefusesMoreTokensThanPositions) {
    auto model = model_with_dropout(0);
    model.max_positions = kSequence - 1;
    StageRig rig(model, 0);
    MicroBatch batch;
    batch.tokens = at::zeros({kBatch, kSequence}, at::kLong);
    EXPECT_THROW(rig.stage().forward({}, batch), UsageError);
}

TEST(MakeStage, RefusesParametersThatAreNotTheStages) {
    const auto model = model_with_dropout(0);
    const auto parameters = [](std::vector<std::vector<std::int64_t>> shapes) {
        std::vector<Parameter> result;
        for (const auto& shape : shapes) result.push_back({at::zeros(shape), nullptr, 0});
        return result;
    };
    const std::vector<std::vector<std::int64_t>> head{{model.vocab_size, model.d_model},
                                                      {model.vocab_size}};
    const auto family = make_simple_transformer(model);
    EXPECT_NO_THROW(family->make_stage(2, parameters(head), test_gemm()));
    EXPECT_THROW(family->make_stage(2, parameters({head[0]}), test_gemm()), LogicError);
    EXPECT_THROW(family->make_stage(2, parameters({head[0], head[1], head[1]}), test_gemm()),
                 LogicError);
    EXPECT_THROW(family->make_stage(2, parameters({head[1], head[0]}), test_gemm()), LogicError);
    EXPECT_THROW(family->make_stage(3, parameters(head), test_gemm()), LogicError);
}

TEST(TensorView, RefusesAShapeOfAnotherSize) {
    std::vector<float> memory(6);
    EXPECT_NO_THROW(tensor_view(TypedSpan(std::span<float>(memory)), {2, 3}));
    EXPECT_THROW(tensor_view(TypedSpan(std::span<float>(memory)), {7}), LogicError);
}

}  // namespace
}  // namespace fullshard::model
