#include "base/error.h"
#include "base/files.h"
#include "checkpoint/export/consolidate.h"
#include "checkpoint/export/import.h"
#include "checkpoint/foreign_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/weights.h"
#include "checkpoint/toy_checkpoint.h"
#include "kernels/half_float.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

class ModelExportTest : public testing::Test {
  protected:
    fs::path path(const std::string& name) const { return folder_.path() / name; }

    /// A folder as transformers saves it.
    fs::path foreign(const spec::Architecture& model, const std::string& name = "foreign") const {
        fs::create_directories(path(name));
        toy::write_safetensors(path(name) / "model.safetensors", toy::of_transformers(model));
        toy::write_text(path(name) / "config.json", spec::to_hf_config(model));
        toy::write_text(path(name) / "tokenizer.json", "{\"of\": \"" + name + "\"}");
        toy::write_text(path(name) / "README.md", "is no tokenizer");
        return path(name);
    }
    /// The run's checkpoint, with blocks that end inside of rows, as several ranks write them.
    fs::path imported(const spec::Architecture& model) const {
        const fs::path made = import_weights(foreign(model), path("run/checkpoints")).folder;
        toy::rewrite_manifest(made, [&](Manifest& manifest) {
            const auto weights = open_weights(made);
            for (TensorEntry& tensor : manifest.tensors) {
                std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
                weights->read(tensor.parameter, 0, values);
                tensor.blocks.clear();
                for (std::int64_t begin = 0; begin < tensor.numel(); begin += 7) {
                    const std::int64_t count = std::min<std::int64_t>(7, tensor.numel() - begin);
                    tensor.blocks.push_back(
                        {begin, count,
                         digest(values.data() + begin, static_cast<std::size_t>(count) * 4)});
                }
            }
        });
        return made;
    }
    static ConsolidateOptions hf() { return {.format = FileFormat::kHuggingFace}; }
    static ConsolidateOptions llmc() { return {.format = FileFormat::kLlmc}; }

    /// Names, shapes and values in the file are these, and nothing else is there.
    static void expect_tensors(const fs::path& file, std::vector<toy::ForeignTensor> expected,
                               const std::function<float(float)>& rounded) {
        const auto weights = open_weights(file);
        std::map<std::string, std::vector<std::int64_t>> shapes;
        for (const auto& tensor : weights->tensors()) shapes[tensor.name] = tensor.shape;
        EXPECT_EQ(shapes.size(), expected.size());
        for (toy::ForeignTensor& tensor : expected) {
            EXPECT_EQ(shapes[tensor.name], tensor.shape) << tensor.name;
            std::vector<float> values(tensor.values.size());
            weights->read(tensor.name, 0, values);
            std::ranges::transform(tensor.values, tensor.values.begin(), rounded);
            EXPECT_EQ(values, tensor.values) << tensor.name;
        }
    }
    std::string error(const fs::path& saved, const fs::path& out,
                      const ConsolidateOptions& options) const {
        return toy::error_of([&] { consolidate(saved, out, options); });
    }

    toy::TemporaryFolder folder_;
};

TEST_F(ModelExportTest, WhatCameFromTransformersGoesBack) {
    for (const spec::Architecture& model :
         {spec::Architecture(toy::small_gpt2()), spec::Architecture(toy::small_llama())}) {
        const fs::path saved = imported(model);
        const Consolidated done = consolidate(saved, path("hf"), hf());
        EXPECT_EQ(done.files, std::vector<fs::path>{path("hf/model.safetensors")});
        EXPECT_EQ(done.companions,
                  (std::vector<fs::path>{path("hf/tokenizer.json"), path("hf/config.json")}));
        expect_tensors(path("hf/model.safetensors"), toy::of_transformers(model), std::identity());
        EXPECT_EQ(read_file(path("hf/config.json")), read_file(path("foreign/config.json")));
        EXPECT_EQ(read_file(path("hf/tokenizer.json")), "{\"of\": \"foreign\"}");
        EXPECT_FALSE(fs::exists(path("hf/README.md")));
        fs::remove_all(path("hf"));
        fs::remove_all(path("run"));
    }
}

TEST_F(ModelExportTest, HalfWidth) {
    ConsolidateOptions options = hf();
    options.dtype = DType::kBFloat16;
    consolidate(imported(toy::small_gpt2()), path("hf"), options);
    expect_tensors(path("hf/model.safetensors"), toy::of_transformers(toy::small_gpt2()),
                   [](float value) { return kernels::to_float(kernels::to_bfloat16(value)); });
    EXPECT_TRUE(toy::contains(read_file(path("hf/config.json")), "\"dtype\": \"bfloat16\""));
}

TEST_F(ModelExportTest, ShardsAndIndex) {
    ConsolidateOptions options = hf();
    options.max_shard_bytes = 900;
    const Consolidated done = consolidate(imported(toy::small_gpt2()), path("hf"), options);
    EXPECT_GT(done.files.size(), 3u);
    EXPECT_TRUE(done.files.front().filename().string().starts_with("model-00001-of-0000"));
    EXPECT_EQ(done.files.back(), path("hf/model.safetensors.index.json"));
    expect_tensors(path("hf/model.safetensors.index.json"), toy::of_transformers(toy::small_gpt2()),
                   std::identity());
    expect_tensors(path("hf"), toy::of_transformers(toy::small_gpt2()), std::identity());
}

TEST_F(ModelExportTest, CopiesShareTheShards) {
    const fs::path saved = imported(toy::small_gpt2());
    ConsolidateOptions options = hf();
    options.max_shard_bytes = 900;
    options.copy = {.index = 1, .count = 2};
    const Consolidated one = consolidate(saved, path("hf"), options);
    EXPECT_FALSE(one.complete);
    EXPECT_TRUE(one.companions.empty());
    EXPECT_FALSE(fs::exists(path("hf/model.safetensors.index.json")));
    options.copy.index = 0;
    EXPECT_TRUE(consolidate(saved, path("hf"), options).complete);
    EXPECT_TRUE(fs::exists(path("hf/config.json")));
    expect_tensors(path("hf"), toy::of_transformers(toy::small_gpt2()), std::identity());
}

/// Rows of the padding are no tokens: a reader would offer them as such.
TEST_F(ModelExportTest, PaddedVocabularyIsCut) {
    toy::write_text(path("model.bin"), toy::llmc_bytes(toy::small_gpt2()));
    const Imported made = import_weights(path("model.bin"), path("run/checkpoints"));
    EXPECT_EQ(open_folder(made.folder).tensors.front().shape, (std::vector<std::int64_t>{8, 4}));
    EXPECT_EQ(*made.architecture, spec::Architecture(toy::small_gpt2()));
    EXPECT_TRUE(made.tokenizer.empty());
    consolidate(made.folder, path("hf"), hf());
    expect_tensors(path("hf/model.safetensors"), toy::of_transformers(toy::small_gpt2()),
                   std::identity());
}

TEST_F(ModelExportTest, AnInterruptedExportGoesOn) {
    const fs::path saved = imported(toy::small_gpt2());
    ConsolidateOptions killed = hf();
    killed.progress = [left = 40](std::int64_t, std::int64_t) mutable {
        if (left-- == 0) throw RunError("killed");
    };
    EXPECT_THROW(consolidate(saved, path("hf"), killed), RunError);
    EXPECT_FALSE(fs::exists(path("hf/model.safetensors")));
    // What lies on the disk may not be what the journal says.
    toy::flip_bit(path("hf/model.safetensors.tmp"), 3000);
    const Consolidated done = consolidate(saved, path("hf"), hf());
    EXPECT_GT(done.bytes_found, 100);
    expect_tensors(path("hf/model.safetensors"), toy::of_transformers(toy::small_gpt2()),
                   std::identity());
}

TEST_F(ModelExportTest, FilesOfLlmcAreTheirsByteByByte) {
    spec::Gpt2 padded = toy::small_gpt2();
    const fs::path saved = imported(padded);
    consolidate(saved, path("model.bin"), llmc());
    padded.padded_vocab_size = 128;
    EXPECT_TRUE(read_file(path("model.bin")) == toy::llmc_bytes(padded));
    ConsolidateOptions half = llmc();
    half.dtype = DType::kBFloat16;
    consolidate(saved, path("half.bin"), half);
    EXPECT_EQ(read_file(path("half.bin")).substr(0, 8),
              std::string("\xc6\xd7\x34\x01\x05\0\0\0", 8));
    EXPECT_EQ(fs::file_size(path("half.bin")) - 1024,
              (fs::file_size(path("model.bin")) - 1024) / 2);
}

TEST_F(ModelExportTest, WhatFilesOfLlmcCannotSay) {
    EXPECT_TRUE(toy::contains(error(imported(toy::small_llama()), path("m.bin"), llmc()),
                              "for GPT-2 only"));
    spec::Gpt2 other = toy::small_gpt2();
    other.tie_embeddings = false;
    other.d_ff = 12;
    other.norm_eps = 1e-6;
    fs::remove_all(path("run"));
    ConsolidateOptions options = llmc();
    options.dtype = DType::kFloat16;
    const std::string found = error(imported(other), path("m.bin"), options);
    for (const char* part : {"not fp16", "its head is tied", "4 times", "epsilon of 1e-5"}) {
        EXPECT_TRUE(toy::contains(found, part));
    }
    EXPECT_FALSE(fs::exists(path("m.bin")));
}

TEST_F(ModelExportTest, ChoicesThatDoNotGoTogether) {
    const fs::path saved = imported(toy::small_llama());
    ConsolidateOptions options = hf();
    options.selection.include = {"*norm*"};
    EXPECT_TRUE(toy::contains(error(saved, path("hf"), options), "hold whole models"));
    options = hf();
    options.selection.with_optimizer = true;
    EXPECT_TRUE(toy::contains(error(saved, path("hf"), options), "--with-optimizer"));
    options = hf();
    options.tokenizer = path("run");
    EXPECT_TRUE(toy::contains(error(saved, path("hf"), options), "holds no files of a tokenizer"));
    options.format = FileFormat::kSafetensors;
    EXPECT_TRUE(toy::contains(error(saved, path("m.safetensors"), options), "--format hf"));
    EXPECT_TRUE(toy::contains(error(toy::save(path("toy")), path("hf"), hf()),
                              "does not say which model it holds"));
    EXPECT_FALSE(fs::exists(path("hf")));
}

TEST_F(ModelExportTest, FoldersOfOthersStayAsTheyAre) {
    const fs::path saved = imported(toy::small_llama());
    foreign(toy::small_gpt2(), "other");
    const std::string config = read_file(path("other/config.json"));
    EXPECT_TRUE(toy::contains(error(saved, path("other"), hf()), "config.json is there"));
    fs::remove(path("other/config.json"));
    EXPECT_TRUE(
        toy::contains(error(saved, path("other"), hf()), "tokenizer.json exists and differs"));
    fs::remove(path("other/tokenizer.json"));
    EXPECT_TRUE(toy::contains(error(saved, path("other"), hf()), "model.safetensors exists"));
    EXPECT_FALSE(fs::exists(path("other/config.json")));
    toy::write_text(path("other/config.json"), config);
    ConsolidateOptions options = hf();
    options.overwrite = true;
    consolidate(saved, path("other"), options);
    expect_tensors(path("other"), toy::of_transformers(toy::small_llama()), std::identity());
    toy::write_text(path("file"), "");
    EXPECT_TRUE(toy::contains(error(saved, path("file"), hf()), "is no folder"));
}

TEST_F(ModelExportTest, ATokenizerOfAnotherModelIsInTheWay) {
    imported(toy::small_llama());
    const fs::path other = foreign(toy::small_llama(), "other");
    fs::remove_all(path("run/checkpoints"));
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { import_weights(other, path("run/checkpoints")); }),
                      "tokenizer.json exists and differs"));
    EXPECT_FALSE(fs::exists(path("run/checkpoints/step-00000000")));
    import_weights(other, path("run/checkpoints"), {.overwrite = true});
    EXPECT_EQ(read_file(path("run/tokenizer/tokenizer.json")), "{\"of\": \"other\"}");
    // A folder of checkpoints that belongs to no run keeps its tokenizer inside.
    import_weights(other, path("loose/"));
    EXPECT_TRUE(fs::exists(path("loose/tokenizer/tokenizer.json")));
    ConsolidateOptions options = hf();
    options.tokenizer = path("foreign");
    consolidate(path("loose/step-00000000"), path("hf"), options);
    EXPECT_EQ(read_file(path("hf/tokenizer.json")), "{\"of\": \"foreign\"}");
}

TEST_F(ModelExportTest, ACheckpointThatIsNotTheModelItNames) {
    const fs::path saved = imported(toy::small_llama());
    toy::rewrite_manifest(saved, [](Manifest& manifest) {
        spec::Llama model = toy::small_llama();
        model.num_layers = 1;
        model.d_ff = 12;
        manifest.architecture = spec::to_hf_config(model);
    });
    const std::string found = error(saved, path("hf"), hf());
    EXPECT_TRUE(toy::contains(found, "model.layers.1.mlp.up_proj.weight is not in the model"));
    EXPECT_TRUE(toy::contains(found, "up_proj.weight has shape [10, 8] instead of [12, 8]"));
}

}  // namespace
}  // namespace fullshard::checkpoint
