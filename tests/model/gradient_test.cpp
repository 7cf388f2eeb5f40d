// Outputs and gradients of every stage against plain autograd on the textbook formulas.
#include "model/stage_rig.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <tuple>

namespace fullshard::model {
namespace {

constexpr double kTolerance = 1e-5;
constexpr std::int64_t kBatch = 3, kSequence = 7;

spec::SimpleTransformer small_model() {
    spec::SimpleTransformer model;
    model.vocab_size = 11;
    model.d_model = 8;
    model.num_heads = 2;
    model.num_layers = 1;
    model.d_ff = 20;
    model.dropout = 0.0;
    return model;
}

using Leaves = std::vector<at::Tensor>;

at::Tensor normalise(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * weight + bias;
}

at::Tensor drop(const at::Tensor& x, double p) {
    return p > 0 ? std::get<0>(at::native_dropout(x, p, true)) : x;
}

/// softmax(q k^T / sqrt(head size)) v, head by head in one product.
at::Tensor attention(const at::Tensor& x, const Leaves& w, const spec::SimpleTransformer& m) {
    const auto split = at::linear(x, w[0], w[1]).chunk(3, -1);
    const auto heads = [&](const at::Tensor& t) {
        return t.reshape({kBatch, kSequence, m.num_heads, -1}).permute({0, 2, 1, 3});
    };
    const at::Tensor q = heads(split[0]), k = heads(split[1]), v = heads(split[2]);
    at::Tensor scores = q.matmul(k.transpose(-1, -2)) / std::sqrt(m.d_model / m.num_heads);
    if (m.causal) {
        const at::Tensor future = at::ones({kSequence, kSequence}, at::kBool).triu(1);
        scores = scores.masked_fill(future, -INFINITY);
    }
    at::Tensor weights = at::softmax(scores, -1);
    if (m.dropout > 0) weights = at::dropout(weights, m.dropout, true);
    return at::linear(weights.matmul(v).permute({0, 2, 1, 3}).reshape(x.sizes()), w[2], w[3]);
}

at::Tensor feed_forward(const at::Tensor& x, const Leaves& w, const spec::SimpleTransformer& m) {
    at::Tensor hidden = at::linear(x, w[4], w[5]);
    hidden = m.activation == spec::Activation::kRelu
                 ? hidden.clamp_min(0)
                 : 0.5 * hidden * (1 + (hidden / std::numbers::sqrt2).erf());
    return at::linear(drop(hidden, m.dropout), w[6], w[7]);
}

at::Tensor reference_layer(const at::Tensor& x, const Leaves& w, const spec::SimpleTransformer& m) {
    if (m.norm_first) {
        const at::Tensor y = x + drop(attention(normalise(x, w[8], w[9]), w, m), m.dropout);
        return y + drop(feed_forward(normalise(y, w[10], w[11]), w, m), m.dropout);
    }
    const at::Tensor y = normalise(x + drop(attention(x, w, m), m.dropout), w[8], w[9]);
    return normalise(y + drop(feed_forward(y, w, m), m.dropout), w[10], w[11]);
}

at::Tensor reference(std::size_t index, const at::Tensor& x, const MicroBatch& batch,
                     const Leaves& w, const spec::SimpleTransformer& m) {
    if (index == 0) {
        const at::Tensor embedded = at::embedding(w[0], batch.tokens);
        if (m.max_positions == 0) return embedded;
        return embedded + at::embedding(w[1], at::arange(kSequence));
    }
    return index == 1 ? reference_layer(x, w, m) : at::linear(x, w[0], w[1]);
}

struct Pass {
    at::Tensor out, grad_x;
    Leaves grad_parameters;
};

struct Case {
    std::string name;
    std::size_t index;
    spec::SimpleTransformer model;
};

class EveryStage : public testing::TestWithParam<Case> {
  protected:
    at::Tensor input(std::uint64_t seed) const {
        if (GetParam().index == 0) return {};
        return random_tensor({kBatch, kSequence, GetParam().model.d_model}, seed)
            .requires_grad_(true);
    }
    MicroBatch batch(std::uint64_t seed) const {
        MicroBatch result;
        result.tokens = random_classes({kBatch, kSequence}, GetParam().model.vocab_size, seed);
        return result;
    }
    at::Tensor grad_out(std::uint64_t seed) const {
        const auto& model = GetParam().model;
        const std::int64_t width = GetParam().index == 2 ? model.vocab_size : model.d_model;
        return random_tensor({kBatch, kSequence, width}, seed + 100);
    }

    Pass expected(std::uint64_t seed) {
        const auto leaves = rig_.copies();
        const at::Tensor x = input(seed);
        seed_generator(seed);
        Pass pass;
        pass.out = reference(GetParam().index, x, batch(seed), leaves, GetParam().model);
        auto inputs = leaves;
        if (x.defined()) inputs.push_back(x);
        pass.grad_parameters = torch::autograd::grad({pass.out}, inputs, {grad_out(seed)});
        if (x.defined()) {
            pass.grad_x = pass.grad_parameters.back();
            pass.grad_parameters.pop_back();
        }
        return pass;
    }

    void run_and_compare(std::uint64_t seed, const Pass& want) {
        const at::Tensor x = input(seed);
        seed_generator(seed);
        const at::Tensor out = rig_.stage().forward(x, batch(seed));
        expect_close(out, want.out, kTolerance, "output");
        const at::Tensor grad_x = rig_.backward(out, x, grad_out(seed));
        if (x.defined()) expect_close(grad_x, want.grad_x, kTolerance, "gradient of x");
    }

    StageRig rig_{GetParam().model, GetParam().index};
};

TEST_P(EveryStage, OverwritesPoisonedMemoryWithTheGradient) {
    const Pass want = expected(1);
    run_and_compare(1, want);
    for (std::size_t i = 0; i < rig_.size(); ++i) {
        EXPECT_TRUE(rig_.sink().written(i));
        expect_close(rig_.gradient(i), want.grad_parameters[i], kTolerance, std::to_string(i));
    }
}

TEST_P(EveryStage, AddsToAGradientOfTheSameMicroBatch) {
    const Pass first = expected(1), second = expected(2);
    run_and_compare(1, first);
    run_and_compare(2, second);
    for (std::size_t i = 0; i < rig_.size(); ++i) {
        expect_close(rig_.gradient(i), first.grad_parameters[i] + second.grad_parameters[i],
                     kTolerance, std::to_string(i));
    }
}

std::vector<Case> cases() {
    std::vector<Case> result;
    auto model = small_model();
    result.push_back({"embedding", 0, model});
    model.max_positions = kSequence + 2;
    result.push_back({"embedding_with_positions", 0, model});
    result.push_back({"head_logits", 2, model});
    for (const auto activation : {spec::Activation::kRelu, spec::Activation::kGelu}) {
        for (const bool norm_first : {false, true}) {
            for (const bool causal : {false, true}) {
                for (const double dropout : {0.0, 0.25}) {
                    model.activation = activation;
                    model.norm_first = norm_first;
                    model.causal = causal;
                    model.dropout = dropout;
                    std::string name = "layer";
                    name += activation == spec::Activation::kRelu ? "_relu" : "_gelu";
                    name += norm_first ? "_pre_norm" : "_post_norm";
                    name += causal ? "_causal" : "_bidirectional";
                    if (dropout > 0) name += "_dropout";
                    result.push_back({name, 1, model});
                }
            }
        }
    }
    return result;
}

INSTANTIATE_TEST_SUITE_P(Stages, EveryStage, testing::ValuesIn(cases()),
                         [](const auto& entry) { return entry.param.name; });

TEST(FrozenParameters, LeaveTheirSinksClosed) {
    const auto model = small_model();
    const std::vector<std::size_t> frozen{0, 3, 4, 7, 10};
    StageRig rig(model, 1, {.frozen = frozen});
    const at::Tensor x = random_tensor({kBatch, kSequence, model.d_model}, 1).requires_grad_(true);
    const at::Tensor out = rig.stage().forward(x, {});
    rig.backward(out, x, out.detach());
    for (std::size_t i = 0; i < rig.size(); ++i) {
        const bool is_frozen = std::ranges::find(frozen, i) != frozen.end();
        EXPECT_EQ(rig.sink().written(i), !is_frozen) << i;
        EXPECT_EQ(rig.gradient(i).isnan().any().item<bool>(), is_frozen) << i;
    }
}

TEST(FrozenParameters, AWhollyFrozenStageStillPassesTheGradientOn) {
    const auto model = small_model();
    StageRig trainable(model, 1);
    StageRig frozen(model, 1, {.frozen = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}});
    const at::Tensor x = random_tensor({kBatch, kSequence, model.d_model}, 1).requires_grad_(true);
    const auto grad_x = [&](StageRig& rig) {
        const at::Tensor out = rig.stage().forward(x, {});
        return rig.backward(out, x, out.detach());
    };
    EXPECT_TRUE(grad_x(frozen).equal(grad_x(trainable)));
}

}  // namespace
}  // namespace fullshard::model
