#include "spec/simple_transformer.h"

#include "base/error.h"
#include "spec/reading.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::spec {
namespace {

SimpleTransformer small_model() {
    SimpleTransformer model;
    model.vocab_size = 61;
    model.d_model = 32;
    model.num_layers = 2;
    model.d_ff = 64;
    model.max_positions = 16;
    return model;
}

TEST(Describe, ATiedHeadHasTheEmbeddingsWeight) {
    auto model = small_model();
    const ModelSpec untied = describe(model);
    model.tie_embeddings = true;
    const ModelSpec tied = describe(model);
    EXPECT_EQ(names_and_shapes(tied), names_and_shapes(untied));
    const ParameterSpec& weight = tied.stages.back().parameters.front();
    EXPECT_EQ(weight.name, "head.weight");
    EXPECT_EQ(weight.tied_to, "embedding.weight");
    EXPECT_EQ(weight.init.kind, tied.stages.front().parameters.front().init.kind);
    EXPECT_EQ(tied.numel(), untied.numel() - weight.numel());
}

TEST(Describe, BlocksAreTheEncoderLayers) {
    for (const auto& stage : describe(small_model()).stages) {
        EXPECT_EQ(stage.block, stage.name.starts_with("layers.")) << stage.name;
    }
}

// The list is what named_parameters() of the PyTorch module prints; tests/golden stores the same.
TEST(Describe, NamesAndShapesAreThoseOfPyTorch) {
    auto model = small_model();
    model.num_layers = 1;
    const std::vector<std::pair<std::string, Shape>> expected = {
        {"embedding.weight", {61, 32}},
        {"position.weight", {16, 32}},
        {"layers.0.self_attn.in_proj_weight", {96, 32}},
        {"layers.0.self_attn.in_proj_bias", {96}},
        {"layers.0.self_attn.out_proj.weight", {32, 32}},
        {"layers.0.self_attn.out_proj.bias", {32}},
        {"layers.0.linear1.weight", {64, 32}},
        {"layers.0.linear1.bias", {64}},
        {"layers.0.linear2.weight", {32, 64}},
        {"layers.0.linear2.bias", {32}},
        {"layers.0.norm1.weight", {32}},
        {"layers.0.norm1.bias", {32}},
        {"layers.0.norm2.weight", {32}},
        {"layers.0.norm2.bias", {32}},
        {"head.weight", {61, 32}},
        {"head.bias", {61}},
    };
    EXPECT_EQ(names_and_shapes(describe(model)), expected);
}

TEST(Describe, StagesAreEmbeddingLayersHead) {
    const auto spec = describe(small_model());
    EXPECT_EQ(spec.family, "simple_transformer");
    std::vector<std::string> names;
    for (const auto& stage : spec.stages) names.push_back(stage.name);
    EXPECT_EQ(names, (std::vector<std::string>{"embedding", "layers.0", "layers.1", "head"}));
    std::set<std::string> unique;
    for (const auto& parameter : all_parameters(spec)) {
        EXPECT_TRUE(unique.insert(parameter.name).second) << parameter.name;
        EXPECT_TRUE(parameter.trainable);
    }
}

TEST(Describe, WithoutPositionsThereIsNoPositionTable) {
    auto model = small_model();
    model.max_positions = 0;
    const auto spec = describe(model);
    ASSERT_EQ(spec.stages.front().parameters.size(), 1U);
    EXPECT_EQ(spec.stages.front().parameters.front().name, "embedding.weight");
}

TEST(Describe, NumelHasAClosedForm) {
    for (const std::int64_t positions : {0, 128}) {
        SimpleTransformer model;
        model.max_positions = positions;
        const std::int64_t v = 1000, d = 256, ff = 2048, layers = 3;
        const std::int64_t layer = 4 * d * d + 4 * d + 2 * d * ff + ff + d + 4 * d;
        EXPECT_EQ(describe(model).numel(), v * d + positions * d + layers * layer + v * d + v);
    }
    EXPECT_EQ(describe(SimpleTransformer{}).numel(), 4'458'216);
}

TEST(Describe, MatricesDecayAndVectorsDoNot) {
    for (const auto& parameter : all_parameters(describe(small_model()))) {
        const bool decays = parameter.decay == DecayClass::kDecay;
        EXPECT_EQ(decays, parameter.shape.size() == 2) << parameter.name;
    }
}

TEST(Describe, InitialDistributionsAreThoseOfPyTorch) {
    const auto spec = describe(small_model());
    const auto rule = [&](const std::string& name) {
        for (const auto& parameter : all_parameters(spec))
            if (parameter.name == name) return std::pair(parameter.init.kind, parameter.init.scale);
        throw std::runtime_error("no parameter " + name);
    };
    using Kind = InitRule::Kind;
    EXPECT_EQ(rule("embedding.weight"), std::pair(Kind::kNormal, 1.0));
    EXPECT_EQ(rule("position.weight"), std::pair(Kind::kNormal, 0.02));
    const std::string layer = "layers.1.";
    EXPECT_EQ(rule(layer + "self_attn.in_proj_weight"),
              std::pair(Kind::kUniform, std::sqrt(6.0 / (32 + 96))));
    EXPECT_EQ(rule(layer + "self_attn.in_proj_bias"), std::pair(Kind::kConstant, 0.0));
    EXPECT_EQ(rule(layer + "self_attn.out_proj.bias"), std::pair(Kind::kConstant, 0.0));
    for (const char* name : {"self_attn.out_proj.weight", "linear1.weight", "linear1.bias"})
        EXPECT_EQ(rule(layer + name), std::pair(Kind::kUniform, 1.0 / std::sqrt(32.0))) << name;
    for (const char* name : {"linear2.weight", "linear2.bias"})
        EXPECT_EQ(rule(layer + name), std::pair(Kind::kUniform, 1.0 / std::sqrt(64.0))) << name;
    for (const char* norm : {"norm1", "norm2"}) {
        EXPECT_EQ(rule(layer + norm + ".weight"), std::pair(Kind::kConstant, 1.0));
        EXPECT_EQ(rule(layer + norm + ".bias"), std::pair(Kind::kConstant, 0.0));
    }
    EXPECT_EQ(rule("head.bias"), std::pair(Kind::kUniform, 1.0 / std::sqrt(32.0)));
}

TEST(Describe, EveryMistakeIsReportedAtOnceWithKeyAndValue) {
    SimpleTransformer model;
    model.vocab_size = 0;
    model.num_heads = 5;
    model.num_layers = -1;
    model.max_positions = -3;
    model.dropout = 1.0;
    try {
        describe(model);
        FAIL() << "no error";
    } catch (const UsageError& error) {
        const std::string message = error.what();
        for (const char* part :
             {"model.vocab_size = 0", "model.num_heads = 5", "model.d_model = 256",
              "model.num_layers = -1", "model.max_positions = -3", "model.dropout = 1"})
            EXPECT_NE(message.find(part), std::string::npos) << part << " not in\n" << message;
        EXPECT_EQ(message.find("d_ff"), std::string::npos);
    }
}

TEST(Describe, EachWrongValueIsAUsageError) {
    const auto rejects = [](auto change) {
        SimpleTransformer model;
        change(model);
        EXPECT_THROW(describe(model), UsageError);
    };
    rejects([](auto& m) { m.d_model = 0; });
    rejects([](auto& m) { m.num_heads = 0; });
    rejects([](auto& m) { m.num_heads = 3; });
    rejects([](auto& m) { m.num_layers = 0; });
    rejects([](auto& m) { m.d_ff = 0; });
    rejects([](auto& m) { m.dropout = -0.1; });
    rejects([](auto& m) { m.dropout = std::nan(""); });
}

TEST(TrainingFlops, CountsMatrixWeightsAndAttention) {
    const auto model = small_model();
    const double per_layer = 4.0 * 32 * 32 + 2.0 * 32 * 64;
    EXPECT_DOUBLE_EQ(training_flops_per_token(model, 16),
                     6.0 * (2 * per_layer + 61.0 * 32) + 12.0 * 2 * 32 * 16);
}

// https://github.com/pytorch/torchtitan/pull/3225: a tied matrix exists once and is used twice.
TEST(TrainingFlops, ATiedHeadIsMultipliedAllTheSame) {
    auto model = small_model();
    const double untied = training_flops_per_token(model, 16);
    model.tie_embeddings = true;
    EXPECT_EQ(training_flops_per_token(model, 16), untied);
}

}  // namespace
}  // namespace fullshard::spec
