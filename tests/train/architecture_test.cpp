#include "train/architecture.h"

#include "base/error.h"
#include "config/parser.h"
#include "config/render.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace fullshard::train {
namespace {

namespace fs = std::filesystem;

const std::string kLlama = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "vocab_size": 301, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2,
    "head_dim": 8, "num_hidden_layers": 2, "intermediate_size": 40,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
    "initializer_range": 0.04, "hidden_act": "silu", "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.5,
                     "high_freq_factor": 4.5, "original_max_position_embeddings": 32}})";
const std::string kGpt2 = R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 61, "n_positions": 32, "n_embd": 24, "n_layer": 2, "n_head": 3,
    "n_inner": null, "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02})";

class ModelConfig : public testing::Test {
  protected:
    void SetUp() override { fs::create_directories(folder_); }
    void TearDown() override { fs::remove_all(folder_); }

    std::string write(const std::string& json) {
        const fs::path file = folder_ / "config.json";
        std::ofstream(file) << json;
        return file.string();
    }
    static config::Deck deck(const std::string& text) {
        return with_model_config(config::parse(text, "t.ini", {}));
    }

    fs::path folder_ = fs::temp_directory_path() / ("model_config_" + std::to_string(::getpid()));
};

TEST_F(ModelConfig, GivesEverySizeThatNoKeySets) {
    const auto model = architecture_of(deck("[model]\nconfig = " + write(kLlama) + "\n"));
    const spec::Llama expected{.vocab_size = 301,
                               .padded_vocab_size = 301,
                               .max_positions = 64,
                               .d_model = 24,
                               .num_heads = 6,
                               .num_kv_heads = 2,
                               .head_size = 8,
                               .num_layers = 2,
                               .d_ff = 40,
                               .norm_eps = 1e-6,
                               .init_deviation = 0.04,
                               .tie_embeddings = true,
                               .rope = {.theta = 500000.0,
                                        .scaling = spec::Rope::Scaling::kLlama3,
                                        .factor = 8.0,
                                        .original_positions = 32,
                                        .low_freq_factor = 1.5,
                                        .high_freq_factor = 4.5}};
    ASSERT_TRUE(model);
    EXPECT_EQ(std::get<spec::Llama>(*model), expected);
}

TEST_F(ModelConfig, KeysWinOverTheFile) {
    const auto model = architecture_of(
        deck("[model]\nconfig = " + write(kLlama) + "\nnum_layers = 3\npad_vocab_to = 64\n"));
    EXPECT_EQ(std::get<spec::Llama>(*model).num_layers, 3);
    EXPECT_EQ(std::get<spec::Llama>(*model).vocab_size, 301);
    EXPECT_EQ(std::get<spec::Llama>(*model).padded_vocab_size, 320);
}

TEST_F(ModelConfig, AnEffectiveDeckNeedsTheFileNoMore) {
    for (const std::string& json : {kLlama, kGpt2}) {
        const config::Deck first =
            deck("[data]\nsequence = 16\n[model]\nconfig = " + write(json) + "\n");
        const config::Deck again =
            config::parse(config::effective_deck(first), "effective.ini", {});
        EXPECT_EQ(architecture_of(again), architecture_of(first));
        EXPECT_EQ(again, first);
    }
}

TEST_F(ModelConfig, OriginsNameTheFile) {
    const std::string file = write(kGpt2);
    const config::Deck read = deck("[data]\nsequence = 16\n[model]\nconfig = " + file + "\n");
    EXPECT_EQ(config::origin_of(read, "model.d_model"), file);
    EXPECT_EQ(config::origin_of(read, "model.config"), "t.ini:4");
    EXPECT_EQ(read.model.family, config::Family::kGpt2);
    EXPECT_TRUE(read.model.tie_embeddings);  // GPT-2's, which its file need not say
    EXPECT_EQ(read.model.d_ff, 96);
}

TEST_F(ModelConfig, Gpt2IsTiedUnlessAKeySaysOtherwise) {
    EXPECT_TRUE(deck("[model]\nfamily = gpt2\n").model.tie_embeddings);
    EXPECT_FALSE(deck("[model]\nfamily = gpt2\ntie_embeddings = off\n").model.tie_embeddings);
    EXPECT_FALSE(deck("[model]\nfamily = llama\n").model.tie_embeddings);
}

TEST_F(ModelConfig, OfAnotherFamilyIsRefused) {
    try {
        deck("[model]\nfamily = gpt2\nconfig = " + write(kLlama) + "\n");
        FAIL();
    } catch (const UsageError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("model.family = gpt2 (t.ini:2)"), std::string::npos) << text;
        EXPECT_NE(text.find("describes a model of family llama"), std::string::npos) << text;
    }
}

TEST_F(ModelConfig, ThatDescribesNothingIsRefused) {
    for (const fs::path& nothing : {folder_, folder_ / "none"}) {
        try {
            deck("[model]\nconfig = " + nothing.string() + "\n");
            FAIL() << nothing;
        } catch (const DataError& error) {
            const std::string text = error.what();
            EXPECT_NE(text.find("model.config = " + nothing.string()), std::string::npos) << text;
        }
    }
}

TEST(ArchitectureOf, DefaultsFollowFromOtherKeys) {
    config::Deck deck;
    EXPECT_FALSE(architecture_of(deck));
    deck.model.family = config::Family::kLlama;
    const auto model = std::get<spec::Llama>(*architecture_of(deck));
    EXPECT_EQ(model.num_kv_heads, deck.model.num_heads);
    EXPECT_EQ(model.head_size, deck.model.d_model / deck.model.num_heads);
    EXPECT_EQ(model.max_positions, deck.data.sequence);
    EXPECT_EQ(model.padded_vocab_size, deck.model.vocab_size);
}

}  // namespace
}  // namespace fullshard::train
