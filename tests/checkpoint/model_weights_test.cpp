#include "checkpoint/exchange/model_weights.h"

#include "base/error.h"
#include "checkpoint/exchange/architecture.h"
#include "checkpoint/exchange/rearrange.h"
#include "checkpoint/foreign_files.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;
using toy::ForeignTensor;

class ModelWeightsTest : public testing::Test {
  protected:
    fs::path path(const char* name) const { return folder_.path() / name; }
    fs::path safetensors(const std::vector<ForeignTensor>& tensors) const {
        toy::write_safetensors(path("model.safetensors"), tensors);
        return path("model.safetensors");
    }
    fs::path gguf(const spec::Llama& model, std::vector<ForeignTensor> more = {}) const {
        auto tensors = toy::of_llama_cpp(model);
        tensors.insert(tensors.end(), more.begin(), more.end());
        const toy::GgufPairs pairs = toy::metadata_of(model);
        toy::write_gguf(path("model.gguf"), tensors, pairs.bytes, pairs.count);
        return path("model.gguf");
    }
    std::string error(const fs::path& file, const spec::Architecture& architecture) const {
        return toy::error_of([&] { open_model_weights(file, architecture); });
    }

    /// Every range of every parameter is what the model has there.
    static void expect_ours(const fs::path& file, const spec::Architecture& architecture) {
        const auto weights = open_model_weights(file, architecture);
        const auto ours = toy::of_fullshard(architecture);
        ASSERT_EQ(weights->tensors().size(), ours.size());
        for (std::size_t t = 0; t < ours.size(); ++t) {
            EXPECT_EQ(weights->tensors()[t].name, ours[t].name);
            EXPECT_EQ(weights->tensors()[t].shape, ours[t].shape);
            const auto size = ours[t].values.size();
            for (std::size_t begin = 0; begin <= size; begin += 3) {
                for (std::size_t count = 0; count <= size - begin; count += 5) {
                    std::vector<float> range(count, -1.0f);
                    weights->read(ours[t].name, static_cast<std::int64_t>(begin), range);
                    ASSERT_TRUE(
                        std::ranges::equal(range, std::span(ours[t].values).subspan(begin, count)))
                        << ours[t].name << " from " << begin << ", " << count;
                }
            }
        }
    }

    toy::TemporaryFolder folder_;
};

TEST_F(ModelWeightsTest, OfTransformers) {
    expect_ours(safetensors(toy::of_transformers(toy::small_gpt2())), toy::small_gpt2());
    expect_ours(safetensors(toy::of_transformers(toy::small_llama())), toy::small_llama());
}

TEST_F(ModelWeightsTest, OfTransformersWithoutPrefix) {
    for (const spec::Architecture& model :
         {spec::Architecture(toy::small_gpt2()), spec::Architecture(toy::small_llama())}) {
        auto tensors = toy::of_transformers(model);
        for (ForeignTensor& tensor : tensors) {
            for (const std::string prefix : {"transformer.", "model."}) {
                if (tensor.name.starts_with(prefix)) tensor.name.erase(0, prefix.size());
            }
        }
        expect_ours(safetensors(tensors), model);
    }
}

TEST_F(ModelWeightsTest, OfLlamaCpp) {
    spec::Llama groups = toy::small_llama();
    groups.num_heads = 4;
    groups.num_kv_heads = 2;
    expect_ours(gguf(groups), groups);
    toy::write_gguf(path("gpt2.gguf"), toy::of_llama_cpp(toy::small_gpt2()), "", 0);
    expect_ours(path("gpt2.gguf"), toy::small_gpt2());
}

TEST_F(ModelWeightsTest, OfLlmc) {
    toy::write_text(path("model.bin"), toy::llmc_bytes(toy::small_gpt2()));
    expect_ours(path("model.bin"), toy::small_gpt2());
    // The padding is the model's affair, whatever the file has.
    spec::Gpt2 unpadded = toy::small_gpt2();
    unpadded.padded_vocab_size = 5;
    expect_ours(path("model.bin"), unpadded);
}

/// The names are those of transformers, the layouts are not: the shape of c_attn tells.
TEST_F(ModelWeightsTest, OfFullShard) {
    expect_ours(safetensors(toy::of_fullshard(toy::small_gpt2())), toy::small_gpt2());
}

TEST_F(ModelWeightsTest, UntiedHeads) {
    spec::Gpt2 model = toy::small_gpt2();
    model.tie_embeddings = false;
    expect_ours(safetensors(toy::of_transformers(model)), model);
    toy::write_text(path("model.bin"), toy::llmc_bytes(model));
    EXPECT_TRUE(toy::contains(error(path("model.bin"), model), "GPT-2 with a tied head"));
}

TEST_F(ModelWeightsTest, WhatProgramsComputeIsPassedOver) {
    auto tensors = toy::of_transformers(toy::small_gpt2());
    tensors.push_back({"transformer.h.0.attn.bias", {1, 1, 3, 3}, std::vector<float>(9)});
    tensors.push_back({"transformer.h.1.attn.masked_bias", {}, {-1e4f}});
    expect_ours(safetensors(tensors), toy::small_gpt2());
    EXPECT_TRUE(toy::contains(mapping_text(path("model.safetensors"), toy::small_gpt2()),
                              "passed over: transformer.h.1.attn.masked_bias\n"));
    // Masks are truth values in some releases.
    tensors.push_back({"transformer.h.1.attn.bias", {1, 1, 3, 3}, std::vector<float>(9), "BOOL"});
    expect_ours(safetensors(tensors), toy::small_gpt2());
    auto llama = toy::of_transformers(toy::small_llama());
    llama.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {3}, {1, 2, 3}});
    expect_ours(safetensors(llama), toy::small_llama());
}

TEST_F(ModelWeightsTest, ATiedHeadMustEqualItsTable) {
    auto tensors = toy::of_transformers(toy::small_gpt2());
    tensors.push_back({"lm_head.weight", tensors[0].shape, tensors[0].values});
    expect_ours(safetensors(tensors), toy::small_gpt2());
    tensors.back().values[7] += 1.0f;
    EXPECT_TRUE(toy::contains(error(safetensors(tensors), toy::small_gpt2()),
                              "lm_head.weight differs from transformer.wte.weight"));
    tensors.back() = {"lm_head.weight", {1, 4}, {1, 2, 3, 4}};
    EXPECT_TRUE(toy::contains(error(safetensors(tensors), toy::small_gpt2()),
                              "lm_head.weight has shape [1, 4] instead of [5, 4]"));
}

TEST_F(ModelWeightsTest, EverythingThatDoesNotFitIsListedOnce) {
    auto tensors = toy::of_transformers(toy::small_llama());
    std::erase_if(tensors, [](const auto& tensor) { return tensor.name == "model.norm.weight"; });
    tensors.push_back({"model.layers.2.mlp.up_proj.weight", {1}, {0}});
    tensors[1].shape = {4, 2 * tensors[1].shape[0]};
    const std::string shape = tensors[1].name + " has shape [4, ";
    const std::string found = error(safetensors(tensors), toy::small_llama());
    EXPECT_TRUE(toy::contains(found, "model.norm.weight is missing"));
    EXPECT_TRUE(toy::contains(found, "model.layers.2.mlp.up_proj.weight is not in the model"));
    EXPECT_TRUE(toy::contains(found, shape));

    std::vector<std::string> left_out;
    const auto weights =
        open_model_weights(path("model.safetensors"), toy::small_llama(), &left_out);
    EXPECT_EQ(left_out.size(), 3u);
    EXPECT_EQ(weights->tensors().size(), toy::of_fullshard(toy::small_llama()).size() - 2);
}

TEST_F(ModelWeightsTest, ParametersOfTypesThatAreNotReadAreNamed) {
    auto tensors = toy::of_transformers(toy::small_llama());
    tensors[0].dtype = "BOOL";
    const fs::path file = safetensors(tensors);
    EXPECT_TRUE(toy::contains(error(file, toy::small_llama()),
                              "model.embed_tokens.weight is of type BOOL, which is not read"));
    EXPECT_TRUE(toy::contains(toy::error_of([&] {
                                  std::vector<float> value(1);
                                  open_weights(file)->read("model.embed_tokens.weight", 0, value);
                              }),
                              "is of type BOOL, only F32, BF16 and F16 are read"));
}

TEST_F(ModelWeightsTest, OtherNumbersOfTokensAreRefused) {
    spec::Gpt2 model = toy::small_gpt2();
    const fs::path file = safetensors(toy::of_transformers(model));
    model.vocab_size = 4;
    EXPECT_TRUE(toy::contains(error(file, model), "has shape [5, 4] instead of [4, 4]"));
}

TEST_F(ModelWeightsTest, MappingIsATable) {
    const std::string text = mapping_text(gguf(toy::small_llama()), toy::small_llama());
    EXPECT_TRUE(toy::contains(text, "parameter "));
    EXPECT_TRUE(toy::contains(text, "model.layers.{0..1}.self_attn.q_proj.weight [12, 8] "));
    EXPECT_TRUE(toy::contains(text, "blk.{0..1}.attn_q.weight [12, 8] "));
    EXPECT_TRUE(toy::contains(text, "rotary halves\n"));
    const std::string gpt2 =
        mapping_text(safetensors(toy::of_transformers(toy::small_gpt2())), toy::small_gpt2());
    EXPECT_TRUE(toy::contains(gpt2, "transformer.h.{0..1}.attn.c_attn.weight [12, 4] "));
    EXPECT_TRUE(toy::contains(gpt2, "[4, 12]  transposed\n"));
    EXPECT_TRUE(toy::contains(gpt2, "transformer.wte.weight [8, 4] "));
}

TEST_F(ModelWeightsTest, ReadsNoMoreThanARangeNeeds) {
    std::vector<float> theirs(7 * 5);
    std::iota(theirs.begin(), theirs.end(), 0.0f);
    std::int64_t elements = 0;
    const ReadTheirs read = [&](std::int64_t first, std::span<float> values) {
        elements += std::ssize(values);
        std::ranges::copy(std::span(theirs).subspan(static_cast<std::size_t>(first), values.size()),
                          values.begin());
    };
    const std::vector<std::int64_t> shape = {7, 5};
    for (std::int64_t begin = 0; begin < 35; ++begin) {
        for (std::int64_t count = 0; count <= 35 - begin; ++count) {
            elements = 0;
            std::vector<float> out(static_cast<std::size_t>(count));
            read_transposed(read, shape, begin, out);
            EXPECT_EQ(elements, count);
            for (std::int64_t i = 0; i < count; ++i) {
                const std::int64_t at = begin + i;
                EXPECT_EQ(out[static_cast<std::size_t>(i)],
                          static_cast<float>(at % 5 * 7 + at / 5));
            }
        }
    }
}

TEST_F(ModelWeightsTest, ArchitectureOfGguf) {
    spec::Llama model = toy::small_llama();
    model.rope.theta = 1000.0;
    EXPECT_EQ(*architecture_of(gguf(model)), spec::Architecture(model));
    model.tie_embeddings = true;
    EXPECT_EQ(*architecture_of(gguf(model)), spec::Architecture(model));
    // Some converters store a tied head as a copy of the table.
    const toy::ForeignTensor table = toy::of_llama_cpp(model).front();
    const fs::path copied = gguf(model, {{"output.weight", table.shape, table.values}});
    EXPECT_EQ(*architecture_of(copied), spec::Architecture(model));
    expect_ours(copied, model);
    toy::write_gguf(path("other.gguf"), toy::of_llama_cpp(model), "", 0);
    EXPECT_FALSE(architecture_of(path("other.gguf")));
}

/// llama.cpp stores what Llama 3's rule gives for each pair of a head, not the rule.
TEST_F(ModelWeightsTest, ArchitectureOfGgufWithFactorsOfLlama3) {
    spec::Llama model = toy::small_llama();
    model.rope.theta = 500000.0;
    std::vector<float> factors;
    for (int pair = 0; pair < 3; ++pair) {
        const double wavelength = 2 * std::numbers::pi * std::pow(500000.0, pair / 3.0);
        const double low = 8192.0, high = 8192.0 / 4.0;
        const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
        factors.push_back(wavelength < high ? 1.0f
                          : wavelength > low
                              ? 32.0f
                              : static_cast<float>(1 / ((1 - smooth) / 32 + smooth)));
    }
    const fs::path file = gguf(model, {{"rope_freqs.weight", {3}, factors}});
    const auto found = std::get<spec::Llama>(*architecture_of(file));
    EXPECT_EQ(found.rope.scaling, spec::Rope::Scaling::kLlama3);
    EXPECT_EQ(found.rope.factor, 32.0);
    EXPECT_EQ(found.rope.original_positions, 8192);
    expect_ours(file, found);
    EXPECT_TRUE(toy::contains(error(file, model), "asks for rotary frequencies"));
    factors[1] += 1.0f;
    EXPECT_THROW(architecture_of(gguf(model, {{"rope_freqs.weight", {3}, factors}})), DataError);
}

TEST_F(ModelWeightsTest, ArchitectureOfLlmcAndFolders) {
    toy::write_text(path("model.bin"), toy::llmc_bytes(toy::small_gpt2()));
    EXPECT_EQ(*architecture_of(path("model.bin")), spec::Architecture(toy::small_gpt2()));
    const fs::path file = safetensors(toy::of_transformers(toy::small_llama()));
    EXPECT_FALSE(architecture_of(file));
    toy::write_text(path("config.json"), spec::to_hf_config(toy::small_llama()));
    for (const fs::path& place : {file, folder_.path(), path("config.json")}) {
        EXPECT_EQ(*architecture_of(place), spec::Architecture(toy::small_llama())) << place;
    }
    expect_ours(folder_.path(), toy::small_llama());
    toy::write_text(path("config.json"), R"({"model_type": "bert"})");
    EXPECT_FALSE(architecture_of(file));
    toy::write_text(path("config.json"), R"({"model_type": "llama"})");
    EXPECT_THROW(architecture_of(file), DataError);
}

TEST_F(ModelWeightsTest, FoldersWithTwoModelsAreAmbiguous) {
    const auto tensors = toy::of_transformers(toy::small_llama());
    toy::write_safetensors(path("a.safetensors"), tensors);
    expect_ours(folder_.path(), toy::small_llama());
    toy::write_safetensors(path("b.safetensors"), tensors);
    EXPECT_TRUE(toy::contains(error(folder_.path(), toy::small_llama()), "name the one to read"));
    safetensors(tensors);
    expect_ours(folder_.path(), toy::small_llama());
    toy::write_text(path("model.safetensors.index.json"), "{}");
    EXPECT_TRUE(toy::contains(error(folder_.path(), toy::small_llama()), "holds both"));
}

TEST_F(ModelWeightsTest, FilesOfPyTorchAreNamed) {
    toy::write_text(path("pytorch_model.bin"), "PK");
    EXPECT_TRUE(toy::contains(error(folder_.path(), toy::small_llama()), "only PyTorch reads"));
}

/// Files that transformers and the package gguf wrote: the same model twice.
TEST_F(ModelWeightsTest, GoldenGgufIsTheGoldenSafetensors) {
    const fs::path golden = FULLSHARD_GOLDEN_DIR "/gguf";
    const auto architecture = *architecture_of(golden / "llama.gguf");
    const auto quantised = open_model_weights(golden / "llama.gguf", architecture);
    const auto plain = open_model_weights(golden / "llama", *architecture_of(golden / "llama"));
    ASSERT_EQ(quantised->tensors().size(), plain->tensors().size());
    for (const auto& tensor : plain->tensors()) {
        std::int64_t numel = 1;
        for (const std::int64_t extent : tensor.shape) numel *= extent;
        std::vector<float> left(static_cast<std::size_t>(numel)), right(left);
        quantised->read(tensor.name, 0, left);
        plain->read(tensor.name, 0, right);
        EXPECT_EQ(left, right) << tensor.name;
    }
}

}  // namespace
}  // namespace fullshard::checkpoint
