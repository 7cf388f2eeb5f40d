#include "base/error.h"
#include "base/files.h"
#include "spec/architecture.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace fullshard::spec {
namespace {

using Json = nlohmann::json;

const Json kGpt2 = {{"model_type", "gpt2"}, {"vocab_size", 61}, {"n_positions", 20},
                    {"n_embd", 24},         {"n_layer", 2},     {"n_head", 3}};
const Json kLlama = {
    {"model_type", "llama"},         {"vocab_size", 61},       {"hidden_size", 24},
    {"intermediate_size", 48},       {"num_hidden_layers", 2}, {"num_attention_heads", 4},
    {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-5}};

Json with(Json config, const Json& changes) {
    config.update(changes);
    return config;
}
Architecture parse(const Json& config) {
    return parse_hf_config(config.dump(), "config.json");
}
Rope rope_of(const Json& changes) {
    return std::get<Llama>(parse(with(kLlama, changes))).rope;
}
std::string error_of(const Json& config) {
    try {
        parse(config);
    } catch (const DataError& error) {
        return error.what();
    }
    return "no error";
}
testing::AssertionResult says(const Json& config, const std::string& part) {
    const std::string found = error_of(config);
    if (found.find(part) != found.npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << found;
}

TEST(HfConfigTest, Gpt2WithDefaultsOfTransformers) {
    const Gpt2 expected{.vocab_size = 61,
                        .padded_vocab_size = 61,
                        .max_positions = 20,
                        .d_model = 24,
                        .num_heads = 3,
                        .num_layers = 2,
                        .d_ff = 96,
                        .dropout = 0.1,
                        .norm_eps = 1e-5,
                        .init_deviation = 0.02,
                        .tie_embeddings = true};
    EXPECT_EQ(std::get<Gpt2>(parse(kGpt2)), expected);
    EXPECT_EQ(std::get<Gpt2>(parse(with(kGpt2, {{"n_inner", nullptr}}))), expected);
    const Gpt2 other = std::get<Gpt2>(parse(with(kGpt2, {{"n_inner", 50},
                                                         {"tie_word_embeddings", false},
                                                         {"layer_norm_epsilon", 1e-6},
                                                         {"resid_pdrop", 0},
                                                         {"embd_pdrop", 0.0},
                                                         {"attn_pdrop", 0.0}})));
    EXPECT_EQ(other.d_ff, 50);
    EXPECT_FALSE(other.tie_embeddings);
    EXPECT_EQ(other.norm_eps, 1e-6);
    EXPECT_EQ(other.dropout, 0.0);
}

TEST(HfConfigTest, LlamaWithDefaultsOfTransformers) {
    const Llama expected{.vocab_size = 61,
                         .padded_vocab_size = 61,
                         .max_positions = 64,
                         .d_model = 24,
                         .num_heads = 4,
                         .num_kv_heads = 4,
                         .head_size = 6,
                         .num_layers = 2,
                         .d_ff = 48,
                         .norm_eps = 1e-5};
    EXPECT_EQ(std::get<Llama>(parse(kLlama)), expected);
    const Llama other = std::get<Llama>(parse(with(
        kLlama, {{"num_key_value_heads", 2}, {"head_dim", 10}, {"tie_word_embeddings", true}})));
    EXPECT_EQ(other.num_kv_heads, 2);
    EXPECT_EQ(other.head_size, 10);
    EXPECT_TRUE(other.tie_embeddings);
}

TEST(HfConfigTest, RopeInBothSpellings) {
    const Json llama3 = {{"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
    const Rope version4 = rope_of(
        {{"rope_theta", 500000.0}, {"rope_scaling", with(llama3, {{"rope_type", "llama3"}})}});
    const Rope version5 = rope_of(
        {{"rope_parameters", with(llama3, {{"rope_type", "llama3"}, {"rope_theta", 500000.0}})}});
    EXPECT_EQ(version4, version5);
    const Rope expected{.theta = 500000.0,
                        .scaling = Rope::Scaling::kLlama3,
                        .factor = 8.0,
                        .original_positions = 8192,
                        .low_freq_factor = 1.0,
                        .high_freq_factor = 4.0};
    EXPECT_EQ(version4, expected);
    // "type" is how the first versions spelled it.
    const Rope linear = rope_of({{"rope_scaling", {{"type", "linear"}, {"factor", 2}}}});
    EXPECT_EQ(linear.scaling, Rope::Scaling::kLinear);
    EXPECT_EQ(linear.factor, 2.0);
    EXPECT_EQ(rope_of({{"rope_scaling", nullptr}}), Rope());
    EXPECT_EQ(rope_of({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7.0}}}}).theta,
              7.0);
}

TEST(HfConfigTest, RopeTakesTheLengthOfPretraining) {
    const Rope dynamic = rope_of({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 4.0}}}});
    EXPECT_EQ(dynamic.original_positions, 64);
    const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
    EXPECT_EQ(rope_of({{"rope_scaling", yarn}}).original_positions, 64);
    const Rope given =
        rope_of({{"rope_scaling", with(yarn, {{"original_max_position_embeddings", 16},
                                              {"beta_fast", 30.0},
                                              {"attention_factor", 1.5}})}});
    EXPECT_EQ(given.original_positions, 16);
    EXPECT_EQ(given.beta_fast, 30.0);
    EXPECT_EQ(given.beta_slow, 1.0);
    EXPECT_EQ(given.attention_factor, 1.5);
}

TEST(HfConfigTest, SaysAllMistakesAtOnce) {
    const Json config = with(kLlama, {{"hidden_size", nullptr},
                                      {"vocab_size", -1},
                                      {"num_hidden_layers", "2"},
                                      {"rms_norm_eps", {1}}});
    const std::string error = error_of(config);
    EXPECT_TRUE(error.starts_with("config.json: "));
    EXPECT_TRUE(says(config, "hidden_size is missing"));
    EXPECT_TRUE(says(config, "vocab_size = -1 must be a whole number from 1 to"));
    EXPECT_TRUE(says(config, "num_hidden_layers = \"2\" must be a whole number"));
    EXPECT_TRUE(says(config, "rms_norm_eps = [...] must be a number"));
}

TEST(HfConfigTest, RefusesWhatChangesTheNumbersAndIsNotThere) {
    EXPECT_TRUE(says(with(kGpt2, {{"activation_function", "gelu"}}), "only gelu_new"));
    EXPECT_TRUE(
        says(with(kGpt2, {{"attn_pdrop", 0.0}}), "attn_pdrop = 0.0 differs from resid_pdrop"));
    EXPECT_TRUE(says(with(kGpt2, {{"scale_attn_by_inverse_layer_idx", true}}), "not supported"));
    EXPECT_TRUE(says(with(kGpt2, {{"scale_attn_weights", false}}), "not supported"));
    EXPECT_TRUE(says(with(kGpt2, {{"add_cross_attention", true}}), "not supported"));
    EXPECT_TRUE(says(with(kGpt2, {{"n_head", 5}}), "n_head = 5 does not divide n_embd = 24"));
    EXPECT_TRUE(says(with(kLlama, {{"hidden_act", "gelu"}}), "only silu"));
    EXPECT_TRUE(says(with(kLlama, {{"attention_bias", true}}), "attention_bias = true"));
    EXPECT_TRUE(says(with(kLlama, {{"mlp_bias", true}}), "mlp_bias = true"));
    EXPECT_TRUE(says(with(kLlama, {{"attention_dropout", 0.1}}), "attention_dropout = 0.1"));
    EXPECT_TRUE(says(with(kLlama, {{"pretraining_tp", 2}}), "pretraining_tp = 2"));
    EXPECT_TRUE(says(with(kLlama, {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor"));
    EXPECT_TRUE(says(with(kLlama, {{"num_key_value_heads", 3}}), "does not divide"));
    EXPECT_TRUE(says(with(kLlama, {{"head_dim", 5}}), "odd head size"));
    EXPECT_TRUE(says(with(kLlama, {{"rope_scaling", {{"rope_type", "longrope"}}}}),
                     "rope_scaling.rope_type = \"longrope\" is not supported"));
    EXPECT_TRUE(says(with(kLlama, {{"rope_scaling", {{"rope_type", "linear"}}}}),
                     "rope_scaling.factor is missing"));
    EXPECT_TRUE(says(
        with(kLlama, {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}, {"mscale", 1.0}}}}),
        "rope_scaling.mscale = 1.0 is not supported"));
    EXPECT_TRUE(
        says(with(kLlama, {{"rope_theta", 1e4}, {"rope_parameters", {{"rope_theta", 5e5}}}}),
             "differs from rope_theta"));
    EXPECT_TRUE(says(with(kLlama, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}},
                                   {"rope_parameters", {{"rope_type", "default"}}}}),
                     "rope_parameters differ in rope_type"));
}

TEST(HfConfigTest, OtherFamiliesAndTexts) {
    EXPECT_TRUE(
        says({{"model_type", "mistral"}}, "model_type = \"mistral\" is none of gpt2 and llama"));
    EXPECT_TRUE(says(Json::object(), "model_type is none of"));
    EXPECT_TRUE(says(Json::array(), "is no JSON object"));
    EXPECT_THROW(parse_hf_config("{", "config.json"), DataError);
    EXPECT_TRUE(has_known_model_type(kLlama.dump()));
    EXPECT_FALSE(has_known_model_type(R"({"model_type": "bert"})"));
    EXPECT_FALSE(has_known_model_type("["));
}

/// Configurations of every golden model, in the spellings of transformers 4 and 5, come back.
TEST(HfConfigTest, WhatIsWrittenIsReadBack) {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(FULLSHARD_GOLDEN_DIR "/hf")) {
        if (entry.path().extension() != ".json") continue;
        const Json golden = Json::parse(read_file(entry.path()));
        const Architecture read = parse(golden.at("config"));
        const std::string written = to_hf_config(read, DType::kBFloat16);
        EXPECT_EQ(parse_hf_config(written, "written"), read) << entry.path();
        const Json json = Json::parse(written);
        EXPECT_EQ(json.at("torch_dtype"), "bfloat16");
        EXPECT_EQ(json.at("dtype"), "bfloat16");
        ++count;
    }
    EXPECT_GE(count, 15);
}

TEST(HfConfigTest, WritesWhatBothVersionsRead) {
    Llama model{.vocab_size = 60, .padded_vocab_size = 64, .rope = {.theta = 5e5}};
    Json json = Json::parse(to_hf_config(model));
    EXPECT_EQ(json.at("vocab_size"), 60);
    EXPECT_TRUE(json.at("rope_scaling").is_null());
    EXPECT_EQ(json.at("rope_theta"), 5e5);
    EXPECT_EQ(json.at("rope_parameters"), (Json{{"rope_type", "default"}, {"rope_theta", 5e5}}));
    EXPECT_FALSE(json.contains("bos_token_id"));
    model.rope = {.scaling = Rope::Scaling::kDynamic, .factor = 2.0, .original_positions = 128};
    json = Json::parse(to_hf_config(model));
    // transformers has this name alone for the length that it scales from.
    EXPECT_EQ(json.at("max_position_embeddings"), 128);
    EXPECT_EQ(json.at("rope_scaling"), (Json{{"rope_type", "dynamic"}, {"factor", 2.0}}));
    // Its own default would be a token that a small vocabulary does not have.
    EXPECT_TRUE(Json::parse(to_hf_config(Gpt2{.vocab_size = 61})).at("eos_token_id").is_null());
}

}  // namespace
}  // namespace fullshard::spec
