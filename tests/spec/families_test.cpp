// GPT-2 and Llama: names, shapes, counts and initial distributions as published.
#include "base/error.h"
#include "spec/architecture.h"
#include "spec/reading.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::spec {
namespace {

using Kind = InitRule::Kind;

ParameterSpec parameter_of(const ModelSpec& spec, const std::string& name) {
    for (const auto& parameter : all_parameters(spec))
        if (parameter.name == name) return parameter;
    throw std::runtime_error("no parameter " + name);
}

Gpt2 small_gpt2() {
    return {.vocab_size = 50,
            .padded_vocab_size = 64,
            .max_positions = 16,
            .d_model = 12,
            .num_heads = 3,
            .num_layers = 2,
            .d_ff = 48};
}

Llama small_llama() {
    return {.vocab_size = 50,
            .padded_vocab_size = 64,
            .max_positions = 16,
            .d_model = 12,
            .num_heads = 4,
            .num_kv_heads = 2,
            .head_size = 6,
            .num_layers = 2,
            .d_ff = 20};
}

// What named_parameters() of GPT2LMHeadModel prints, with weights of linear layers transposed.
TEST(DescribeGpt2, NamesAreThoseOfTransformers) {
    auto model = small_gpt2();
    model.num_layers = 1;
    const std::vector<std::pair<std::string, Shape>> expected = {
        {"transformer.wte.weight", {64, 12}},
        {"transformer.wpe.weight", {16, 12}},
        {"transformer.h.0.ln_1.weight", {12}},
        {"transformer.h.0.ln_1.bias", {12}},
        {"transformer.h.0.attn.c_attn.weight", {36, 12}},
        {"transformer.h.0.attn.c_attn.bias", {36}},
        {"transformer.h.0.attn.c_proj.weight", {12, 12}},
        {"transformer.h.0.attn.c_proj.bias", {12}},
        {"transformer.h.0.ln_2.weight", {12}},
        {"transformer.h.0.ln_2.bias", {12}},
        {"transformer.h.0.mlp.c_fc.weight", {48, 12}},
        {"transformer.h.0.mlp.c_fc.bias", {48}},
        {"transformer.h.0.mlp.c_proj.weight", {12, 48}},
        {"transformer.h.0.mlp.c_proj.bias", {12}},
        {"transformer.ln_f.weight", {12}},
        {"transformer.ln_f.bias", {12}},
        {"lm_head.weight", {64, 12}},
    };
    EXPECT_EQ(names_and_shapes(describe(model)), expected);
}

// What named_parameters() of LlamaForCausalLM prints.
TEST(DescribeLlama, NamesAreThoseOfTransformers) {
    auto model = small_llama();
    model.num_layers = 1;
    const std::vector<std::pair<std::string, Shape>> expected = {
        {"model.embed_tokens.weight", {64, 12}},
        {"model.layers.0.self_attn.q_proj.weight", {24, 12}},
        {"model.layers.0.self_attn.k_proj.weight", {12, 12}},
        {"model.layers.0.self_attn.v_proj.weight", {12, 12}},
        {"model.layers.0.self_attn.o_proj.weight", {12, 24}},
        {"model.layers.0.mlp.gate_proj.weight", {20, 12}},
        {"model.layers.0.mlp.up_proj.weight", {20, 12}},
        {"model.layers.0.mlp.down_proj.weight", {12, 20}},
        {"model.layers.0.input_layernorm.weight", {12}},
        {"model.layers.0.post_attention_layernorm.weight", {12}},
        {"model.norm.weight", {12}},
        {"lm_head.weight", {64, 12}},
    };
    EXPECT_EQ(names_and_shapes(describe(model)), expected);
}

// Counts that transformers prints for the published models.
TEST(DescribeFamilies, PublishedModelsHaveTheirPublishedSizes) {
    EXPECT_EQ(describe(Gpt2{}).numel(), 124'439'808);
    const Gpt2 xl{.d_model = 1600, .num_heads = 25, .num_layers = 48, .d_ff = 6400};
    EXPECT_EQ(describe(xl).numel(), 1'557'611'200);
    EXPECT_EQ(describe(Llama{}).numel(), 6'738'415'616);
    const Llama smollm2{.vocab_size = 49152,
                        .padded_vocab_size = 49152,
                        .max_positions = 8192,
                        .d_model = 576,
                        .num_heads = 9,
                        .num_kv_heads = 3,
                        .head_size = 64,
                        .num_layers = 30,
                        .d_ff = 1536,
                        .tie_embeddings = true};
    EXPECT_EQ(describe(smollm2).numel(), 134'515'008);
}

TEST(DescribeFamilies, StagesAreEmbeddingBlocksHead) {
    const auto expect_stages = [](const Architecture& model, const std::string& family,
                                  const std::string& blocks) {
        const ModelSpec spec = describe(model);
        EXPECT_EQ(spec.family, family);
        ASSERT_EQ(spec.stages.size(), 4U);
        EXPECT_EQ(spec.stages[0].name, "embedding");
        EXPECT_EQ(spec.stages[1].name, blocks + "0");
        EXPECT_EQ(spec.stages[2].name, blocks + "1");
        EXPECT_EQ(spec.stages[3].name, "head");
        for (const auto& stage : spec.stages)
            EXPECT_EQ(stage.block, stage.name.starts_with(blocks)) << stage.name;
    };
    expect_stages(small_gpt2(), "gpt2", "transformer.h.");
    expect_stages(small_llama(), "llama", "model.layers.");
}

TEST(DescribeFamilies, ATiedHeadIsTheTokenTable) {
    for (const bool tie : {false, true}) {
        auto gpt2 = small_gpt2();
        auto llama = small_llama();
        gpt2.tie_embeddings = llama.tie_embeddings = tie;
        EXPECT_EQ(parameter_of(describe(gpt2), "lm_head.weight").tied_to,
                  tie ? "transformer.wte.weight" : "");
        EXPECT_EQ(parameter_of(describe(llama), "lm_head.weight").tied_to,
                  tie ? "model.embed_tokens.weight" : "");
    }
}

TEST(DescribeFamilies, MatricesDecayAndVectorsDoNot) {
    for (const Architecture& model : {Architecture(small_gpt2()), Architecture(small_llama())}) {
        for (const auto& parameter : all_parameters(describe(model))) {
            EXPECT_EQ(parameter.decay == DecayClass::kDecay, parameter.shape.size() == 2)
                << parameter.name;
        }
    }
}

// Radford et al. (2019), section 2.3: residual branches start smaller by 1 / sqrt(2 N).
TEST(InitialValues, Gpt2sBranchesStartSmallerTheMoreThereAre) {
    const ModelSpec spec = describe(small_gpt2());
    for (const auto& parameter : all_parameters(spec)) {
        const std::string& name = parameter.name;
        std::pair<Kind, double> expected{Kind::kNormal, 0.02};
        if (name.ends_with(".bias")) {
            expected = {Kind::kConstant, 0.0};
        } else if (name.find("ln_") != std::string::npos) {
            expected = {Kind::kConstant, 1.0};
        } else if (name.ends_with("c_proj.weight")) {
            expected.second = 0.02 / 2.0;  // two layers, four branches
        }
        EXPECT_EQ(std::pair(parameter.init.kind, parameter.init.scale), expected) << name;
    }
}

TEST(InitialValues, OfLlamaAreNormalAndItsNormsStartAtOne) {
    auto model = small_llama();
    model.init_deviation = 0.05;
    for (const auto& parameter : all_parameters(describe(model))) {
        const bool norm = parameter.shape.size() == 1;
        EXPECT_EQ(parameter.init.kind, norm ? Kind::kConstant : Kind::kNormal) << parameter.name;
        EXPECT_EQ(parameter.init.scale, norm ? 1.0 : 0.05) << parameter.name;
    }
}

/// Standard deviation of what a parameter starts with.
double drawn_deviation(const ParameterSpec& parameter) {
    std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
    initialize(parameter, 7, 0, values);
    double sum = 0.0, squares = 0.0;
    for (const double x : values) {
        sum += x;
        squares += x * x;
    }
    const auto count = static_cast<double>(values.size());
    return std::sqrt(squares / count - sum / count * (sum / count));
}

TEST(InitialValues, DrawnDeviationsAreTheRules) {
    const Gpt2 gpt2{.vocab_size = 2000,
                    .padded_vocab_size = 2000,
                    .max_positions = 512,
                    .d_model = 128,
                    .num_heads = 4,
                    .num_layers = 8,
                    .d_ff = 512};
    for (const auto& parameter : all_parameters(describe(gpt2))) {
        if (parameter.shape.size() == 1) continue;
        // Four standard errors of a deviation drawn from so many numbers.
        const double tolerance = 4.0 / std::sqrt(2.0 * static_cast<double>(parameter.numel()));
        const double expected = parameter.name.ends_with("c_proj.weight") ? 0.02 / 4.0 : 0.02;
        EXPECT_NEAR(drawn_deviation(parameter) / expected, 1.0, tolerance) << parameter.name;
    }
}

TEST(PaddingRows, StartAsZerosHoweverTheRangeIsCut) {
    const ParameterSpec table = parameter_of(describe(small_gpt2()), "transformer.wte.weight");
    EXPECT_EQ(table.padding_rows, 14);
    std::vector<float> whole(static_cast<std::size_t>(table.numel()));
    initialize(table, 3, 0, whole);
    for (std::size_t i = 0; i < whole.size(); ++i)
        ASSERT_EQ(whole[i] == 0.0F, i >= 50 * 12) << "element " << i;

    for (const std::size_t first : {std::size_t{0}, std::size_t{595}, std::size_t{700}}) {
        std::vector<float> part(68);
        initialize(table, 3, static_cast<std::int64_t>(first), part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + std::ptrdiff_t(first)));
    }
}

TEST(PaddingRows, LeaveTheValuesOfTheOthersAlone) {
    auto model = small_llama();
    const ParameterSpec padded = parameter_of(describe(model), "model.embed_tokens.weight");
    model.padded_vocab_size = model.vocab_size;
    const ParameterSpec exact = parameter_of(describe(model), "model.embed_tokens.weight");
    std::vector<float> first(50 * 12), second(50 * 12);
    initialize(padded, 3, 0, first);
    initialize(exact, 3, 0, second);
    EXPECT_EQ(first, second);
}

std::string mistakes_of(const Architecture& model) {
    try {
        describe(model);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "";
}

void expect_parts(const std::string& message, const std::vector<const char*>& parts) {
    for (const char* part : parts)
        EXPECT_NE(message.find(part), std::string::npos) << part << " not in\n" << message;
}

TEST(DescribeFamilies, EveryMistakeIsReportedAtOnceWithKeyAndValue) {
    auto gpt2 = small_gpt2();
    gpt2.padded_vocab_size = 49;
    gpt2.max_positions = 0;
    gpt2.num_heads = 5;
    gpt2.num_layers = 0;
    gpt2.dropout = 1.0;
    gpt2.norm_eps = 0.0;
    expect_parts(mistakes_of(gpt2),
                 {"49 rows", "model.max_positions = 0", "model.num_heads = 5", "model.d_model = 12",
                  "model.num_layers = 0", "model.dropout = 1", "model.norm_eps = 0"});

    auto llama = small_llama();
    llama.vocab_size = -1;
    llama.num_kv_heads = 3;
    llama.head_size = 5;
    llama.d_ff = 0;
    llama.init_deviation = -0.1;
    llama.rope = {.theta = 0.5, .scaling = Rope::Scaling::kYarn, .factor = 0.5, .beta_fast = 0.1};
    expect_parts(mistakes_of(llama),
                 {"model.vocab_size = -1", "model.num_kv_heads = 3", "model.num_heads = 4",
                  "model.head_size = 5", "model.d_ff = 0", "model.init_deviation = -0.1",
                  "model.rope_theta = 0.5", "model.rope_factor = 0.5",
                  "model.rope_original_positions = 0", "model.rope_beta_fast = 0.1"});
    llama = small_llama();
    llama.rope = {.scaling = Rope::Scaling::kLlama3,
                  .factor = 8,
                  .original_positions = 64,
                  .low_freq_factor = 4,
                  .high_freq_factor = 1};
    expect_parts(mistakes_of(llama), {"model.rope_high_freq_factor = 1"});
    EXPECT_EQ(mistakes_of(small_gpt2()), "");
    EXPECT_EQ(mistakes_of(small_llama()), "");
}

TEST(TrainingFlops, OfFamiliesCountMatrixWeightsAndAttention) {
    const double gpt2_layer = 4.0 * 12 * 12 + 2.0 * 12 * 48;
    EXPECT_DOUBLE_EQ(training_flops_per_token(small_gpt2(), 16),
                     6.0 * (2 * gpt2_layer + 50.0 * 12) + 12.0 * 2 * 12 * 16);
    const double llama_layer = 12.0 * (24 + 12 + 12) + 24.0 * 12 + 3.0 * 12 * 20;
    EXPECT_DOUBLE_EQ(training_flops_per_token(small_llama(), 16),
                     6.0 * (2 * llama_layer + 50.0 * 12) + 12.0 * 2 * 24 * 16);
}

}  // namespace
}  // namespace fullshard::spec
