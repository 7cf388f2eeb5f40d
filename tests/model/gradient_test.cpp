// Outputs and gradients of every stage against plain autograd on the textbook formulas.
#include "model/gpt2.h"
#include "model/llama.h"
#include "model/stage_rig.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/real.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numbers>
#include <string>
#include <tuple>

namespace fullshard::model {
namespace {

constexpr double kTolerance = 1e-5;
constexpr std::int64_t kBatch = 3, kSequence = 7;
constexpr std::int64_t kVocabulary = 11, kWidth = 8;

spec::SimpleTransformer small_model() {
    spec::SimpleTransformer model;
    model.vocab_size = kVocabulary;
    model.d_model = kWidth;
    model.num_heads = 2;
    model.num_layers = 1;
    model.d_ff = 20;
    model.dropout = 0.0;
    return model;
}

spec::Gpt2 small_gpt2(double dropout) {
    return {.vocab_size = kVocabulary,
            .padded_vocab_size = kVocabulary + 2,
            .max_positions = kSequence + 2,
            .d_model = kWidth,
            .num_heads = 2,
            .num_layers = 1,
            .d_ff = 20,
            .dropout = dropout,
            .norm_eps = 1e-3};
}

spec::Llama small_llama(std::int64_t kv_heads) {
    return {.vocab_size = kVocabulary,
            .padded_vocab_size = kVocabulary + 2,
            .d_model = kWidth,
            .num_heads = 4,
            .num_kv_heads = kv_heads,
            .head_size = 6,
            .num_layers = 1,
            .d_ff = 20,
            .norm_eps = 1e-3,
            .rope = {.theta = 20.0}};
}

using Leaves = std::vector<at::Tensor>;

at::Tensor normalise(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double epsilon = 1e-5) {
    const at::Tensor centred = x - x.mean(-1, true);
    return centred / (centred.square().mean(-1, true) + epsilon).sqrt() * weight + bias;
}

at::Tensor rms_normalise(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
    return x / (x.square().mean(-1, true) + epsilon).sqrt() * weight;
}

at::Tensor drop(const at::Tensor& x, double p) {
    return p > 0 ? std::get<0>(at::native_dropout(x, p, true)) : x;
}

/// Rows of three documents each, of 3, 3 and 1 tokens.
void pack(MicroBatch& batch, bool causal) {
    const at::Tensor numbers = at::arange(kSequence).expand({kBatch, kSequence});
    batch.positions = numbers.remainder(3);
    batch.longest_document = 3;
    batch.attention_mask = document_mask(numbers.floor_divide(3), causal);
}

at::Tensor positions_of(const MicroBatch& batch) {
    return batch.positions.defined() ? batch.positions : at::arange(kSequence).unsqueeze(0);
}

at::Tensor split_heads(const at::Tensor& x, std::int64_t heads) {
    return x.reshape({kBatch, kSequence, heads, -1}).transpose(1, 2);
}

/// softmax(q k^T / sqrt(head size)) v, head by head in one product; [batch, heads, sequence, size].
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const MicroBatch& batch, bool causal, double dropout) {
    at::Tensor scores = q.matmul(k.transpose(-1, -2)) / std::sqrt(double(q.size(-1)));
    if (batch.attention_mask.defined()) {
        scores = scores.masked_fill(batch.attention_mask.logical_not(), -INFINITY);
    } else if (causal) {
        const at::Tensor future = at::ones({kSequence, kSequence}, at::kBool).triu(1);
        scores = scores.masked_fill(future, -INFINITY);
    }
    at::Tensor weights = at::softmax(scores, -1);
    if (dropout > 0) weights = at::dropout(weights, dropout, true);
    return weights.matmul(v).transpose(1, 2).reshape({kBatch, kSequence, -1});
}

/// With one matrix for queries, keys and values.
at::Tensor attend(const at::Tensor& x, const at::Tensor* w, std::int64_t heads,
                  const MicroBatch& batch, bool causal, double dropout) {
    const auto parts = at::linear(x, w[0], w[1]).chunk(3, -1);
    const auto split = [&](const at::Tensor& part) { return split_heads(part, heads); };
    const at::Tensor attended =
        attention(split(parts[0]), split(parts[1]), split(parts[2]), batch, causal, dropout);
    return at::linear(attended, w[2], w[3]);
}

at::Tensor feed_forward(const at::Tensor& x, const Leaves& w, const spec::SimpleTransformer& m) {
    at::Tensor hidden = at::linear(x, w[4], w[5]);
    hidden = m.activation == spec::Activation::kRelu
                 ? hidden.clamp_min(0)
                 : 0.5 * hidden * (1 + (hidden / std::numbers::sqrt2).erf());
    return at::linear(drop(hidden, m.dropout), w[6], w[7]);
}

/// What a stage of a family gives by the textbook.
using Reference =
    std::function<at::Tensor(const at::Tensor& x, const MicroBatch& batch, const Leaves& w)>;

Reference simple_layer(const spec::SimpleTransformer& m) {
    return [m](const at::Tensor& x, const MicroBatch& batch, const Leaves& w) {
        const auto attended = [&](const at::Tensor& rows) {
            return drop(attend(rows, &w[0], m.num_heads, batch, m.causal, m.dropout), m.dropout);
        };
        if (m.norm_first) {
            const at::Tensor y = x + attended(normalise(x, w[8], w[9]));
            return y + drop(feed_forward(normalise(y, w[10], w[11]), w, m), m.dropout);
        }
        const at::Tensor y = normalise(x + attended(x), w[8], w[9]);
        return normalise(y + drop(feed_forward(y, w, m), m.dropout), w[10], w[11]);
    };
}

Reference gpt2_block(const spec::Gpt2& m) {
    return [m](const at::Tensor& x, const MicroBatch& batch, const Leaves& w) {
        const at::Tensor rows = normalise(x, w[0], w[1], m.norm_eps);
        const at::Tensor y =
            x + drop(attend(rows, &w[2], m.num_heads, batch, true, m.dropout), m.dropout);
        at::Tensor hidden = at::linear(normalise(y, w[6], w[7], m.norm_eps), w[8], w[9]);
        const double slope = std::sqrt(2.0 / std::numbers::pi);
        hidden = 0.5 * hidden * (1 + (slope * (hidden + 0.044715 * hidden.pow(3))).tanh());
        return y + drop(at::linear(hidden, w[10], w[11]), m.dropout);
    };
}

/// Pair i of a head, as a complex number, times exp(i position theta^(-2 i / size)).
at::Tensor turn(const at::Tensor& x, const MicroBatch& batch, double theta) {
    const std::int64_t pairs = x.size(-1) / 2;
    const at::Tensor frequencies = (at::arange(pairs) * (-std::log(theta) / double(pairs))).exp();
    const at::Tensor angles = positions_of(batch).unsqueeze(1).unsqueeze(-1) * frequencies;
    const at::Tensor turned = at::complex(x.narrow(-1, 0, pairs), x.narrow(-1, pairs, pairs)) *
                              at::complex(angles.cos(), angles.sin());
    return at::cat({at::real(turned), at::imag(turned)}, -1);
}

Reference llama_block(const spec::Llama& m) {
    return [m](const at::Tensor& x, const MicroBatch& batch, const Leaves& w) {
        const at::Tensor rows = rms_normalise(x, w[7], m.norm_eps);
        const auto keys = [&](const at::Tensor& all) {
            return all.repeat_interleave(m.num_heads / m.num_kv_heads, 1);
        };
        const at::Tensor q = split_heads(at::linear(rows, w[0]), m.num_heads);
        const at::Tensor k = split_heads(at::linear(rows, w[1]), m.num_kv_heads);
        const at::Tensor v = split_heads(at::linear(rows, w[2]), m.num_kv_heads);
        const at::Tensor attended =
            attention(turn(q, batch, m.rope.theta), keys(turn(k, batch, m.rope.theta)), keys(v),
                      batch, true, 0.0);
        const at::Tensor y = x + at::linear(attended, w[3]);
        const at::Tensor normalised = rms_normalise(y, w[8], m.norm_eps);
        const at::Tensor gate = at::linear(normalised, w[4]);
        return y + at::linear(gate * gate.sigmoid() * at::linear(normalised, w[5]), w[6]);
    };
}

Reference embedding(double dropout) {
    return [dropout](const at::Tensor&, const MicroBatch& batch, const Leaves& w) {
        const at::Tensor embedded = at::embedding(w[0], batch.tokens);
        if (w.size() == 1) return embedded;
        return drop(embedded + at::embedding(w[1], positions_of(batch)), dropout);
    };
}

struct Pass {
    at::Tensor out, grad_x;
    Leaves grad_parameters;
};

struct Case {
    std::string name;
    std::size_t index;
    std::shared_ptr<const Model> model;
    Reference reference;
    bool packed = false;
};

class EveryStage : public testing::TestWithParam<Case> {
  protected:
    at::Tensor input(std::uint64_t seed) const {
        if (GetParam().index == 0) return {};
        return random_tensor({kBatch, kSequence, kWidth}, seed).requires_grad_(true);
    }
    MicroBatch batch(std::uint64_t seed) const {
        MicroBatch result;
        result.tokens = random_classes({kBatch, kSequence}, kVocabulary, seed);
        if (GetParam().packed) pack(result, GetParam().model->causal());
        return result;
    }
    at::Tensor grad_out(std::uint64_t seed) const {
        const std::int64_t width = GetParam().index == 2 ? kVocabulary : kWidth;
        return random_tensor({kBatch, kSequence, width}, seed + 100);
    }

    Pass expected(std::uint64_t seed) {
        const auto leaves = rig_.copies();
        const at::Tensor x = input(seed);
        seed_generator(seed);
        Pass pass;
        pass.out = GetParam().reference(x, batch(seed), leaves);
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

void add_simple_transformer(std::vector<Case>& cases) {
    auto model = small_model();
    cases.push_back({"embedding", 0, make_simple_transformer(model), embedding(0)});
    cases.push_back({"head_logits", 2, make_simple_transformer(model),
                     [](const at::Tensor& x, const MicroBatch&, const Leaves& w) {
                         return at::linear(x, w[0], w[1]);
                     }});
    model.max_positions = kSequence + 2;
    for (const bool packed : {false, true}) {
        cases.push_back({packed ? "embedding_packed" : "embedding_with_positions", 0,
                         make_simple_transformer(model), embedding(0), packed});
    }
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
                    cases.push_back({name, 1, make_simple_transformer(model), simple_layer(model)});
                }
            }
        }
    }
    for (const bool causal : {false, true}) {
        model.causal = causal;
        cases.push_back({causal ? "layer_packed_causal" : "layer_packed_bidirectional", 1,
                         make_simple_transformer(model), simple_layer(model), /*packed=*/true});
    }
}

void add_gpt2(std::vector<Case>& cases) {
    for (const double dropout : {0.0, 0.25}) {
        for (const bool packed : {false, true}) {
            const auto model = small_gpt2(dropout);
            const std::string kind =
                std::string(dropout > 0 ? "_dropout" : "") + (packed ? "_packed" : "");
            cases.push_back(
                {"gpt2_embedding" + kind, 0, make_gpt2(model), embedding(dropout), packed});
            cases.push_back({"gpt2_block" + kind, 1, make_gpt2(model), gpt2_block(model), packed});
        }
    }
    cases.push_back(
        {"gpt2_head", 2, make_gpt2(small_gpt2(0)),
         [](const at::Tensor& x, const MicroBatch&, const Leaves& w) {
             return at::linear(normalise(x, w[0], w[1], 1e-3), w[2]).narrow(-1, 0, kVocabulary);
         }});
}

void add_llama(std::vector<Case>& cases) {
    for (const std::int64_t kv_heads : {1, 2, 4}) {
        for (const bool packed : {false, true}) {
            const auto model = small_llama(kv_heads);
            cases.push_back({"llama_block_" + std::to_string(kv_heads) + "_kv_heads" +
                                 (packed ? "_packed" : ""),
                             1, make_llama(model), llama_block(model), packed});
        }
    }
    cases.push_back({"llama_embedding", 0, make_llama(small_llama(2)), embedding(0)});
    cases.push_back(
        {"llama_head", 2, make_llama(small_llama(2)),
         [](const at::Tensor& x, const MicroBatch&, const Leaves& w) {
             return at::linear(rms_normalise(x, w[0], 1e-3), w[1]).narrow(-1, 0, kVocabulary);
         }});
}

std::vector<Case> cases() {
    std::vector<Case> result;
    add_simple_transformer(result);
    add_gpt2(result);
    add_llama(result);
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
