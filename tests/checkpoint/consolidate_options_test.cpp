#include "base/error.h"
#include "base/files.h"
#include "checkpoint/export/consolidate.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/state_file.h"
#include "checkpoint/format/weights.h"
#include "checkpoint/toy_checkpoint.h"
#include "kernels/half_float.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

class ConsolidateOptionsTest : public testing::Test {
  protected:
    fs::path out(const std::string& name) const { return folder_.path() / name; }
    std::string error(const std::string& name, const ConsolidateOptions& options) const {
        return toy::error_of([&] { consolidate(saved_, out(name), options); });
    }
    static std::vector<std::string> names(const fs::path& path) {
        std::vector<std::string> names;
        const auto weights = open_weights(path);
        for (const auto& tensor : weights->tensors()) names.push_back(tensor.name);
        std::ranges::sort(names);
        return names;
    }
    /// Values as read back are the checkpoint's after `rounded`.
    template <typename Rounded>
    void expect_values(const fs::path& path, Rounded rounded) const {
        const auto weights = open_weights(path);
        for (const TensorEntry& tensor : toy::tensors()) {
            if (tensor.state != State::kModel) continue;
            std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
            weights->read(tensor.parameter, 0, values);
            std::vector<float> expected = toy::values(tensor, 10);
            std::ranges::transform(expected, expected.begin(), rounded);
            EXPECT_EQ(values, expected) << path << " " << tensor.parameter;
        }
    }
    /// A run that dies after `pieces` pieces.
    void interrupt(const fs::path& path, int pieces, ConsolidateOptions options = {}) const {
        options.progress = [left = pieces](std::int64_t, std::int64_t) mutable {
            if (left-- == 0) throw RunError("killed");
        };
        EXPECT_THROW(consolidate(saved_, path, options), RunError);
        EXPECT_FALSE(fs::exists(path));
        EXPECT_TRUE(fs::exists(path.string() + ".tmp"));
    }

    toy::TemporaryFolder folder_;
    fs::path saved_ = toy::save(folder_.path(), {.ranks = 3, .frozen = {"scale"}});
};

TEST_F(ConsolidateOptionsTest, HalfWidthIsRoundedToNearestAndReadBackExactly) {
    for (const char* extension : {".h5", ".safetensors"}) {
        const std::string end = extension;
        consolidate(saved_, out("bf16" + end), {.dtype = DType::kBFloat16});
        expect_values(out("bf16" + end),
                      [](float value) { return kernels::to_float(kernels::to_bfloat16(value)); });
        consolidate(saved_, out("fp16" + end), {.dtype = DType::kFloat16});
        expect_values(out("fp16" + end),
                      [](float value) { return kernels::to_float(kernels::to_float16(value)); });
    }
    EXPECT_EQ(StateFile::open(out("bf16.h5")).dtype("/scale"), DType::kBFloat16);
    EXPECT_EQ(StateFile::open(out("fp16.h5")).dtype("/scale"), DType::kFloat16);
}

TEST_F(ConsolidateOptionsTest, OverflowsAreCountedAndInfinitiesAreNot) {
    const std::vector<float> values = {65519.0f, 65520.0f, -1e30f, INFINITY, 1.0f, NAN, 3.4e38f};
    {
        StateFile file = StateFile::open_to_write(saved_ / kStateFile);
        file.write("/model/layers.0.linear1.bias", 0, values);
        file.close();
    }
    toy::rewrite_manifest(saved_, [&](Manifest& manifest) {
        const StateFile changed = StateFile::open(saved_ / kStateFile);
        for (TensorEntry& tensor : manifest.tensors) {
            for (Block& block : tensor.blocks) {
                std::vector<float> now(static_cast<std::size_t>(block.count));
                changed.read(dataset_path(tensor.state, tensor.parameter), block.begin, now);
                block.digest = digest(now.data(), now.size() * sizeof(float));
            }
        }
    });
    using Overflows = std::vector<std::pair<std::string, std::int64_t>>;
    EXPECT_EQ(consolidate(saved_, out("a.h5"), {.dtype = DType::kFloat16}).overflowed,
              (Overflows{{"layers.0.linear1.bias", 3}}));
    EXPECT_EQ(consolidate(saved_, out("b.h5"), {.dtype = DType::kBFloat16}).overflowed,
              (Overflows{{"layers.0.linear1.bias", 1}}));
    EXPECT_EQ(consolidate(saved_, out("c.h5")).overflowed, Overflows());
}

TEST_F(ConsolidateOptionsTest, PatternsChooseParameters) {
    using Names = std::vector<std::string>;
    consolidate(saved_, out("a.h5"), {.selection = {.include = {"layers.*"}}});
    EXPECT_EQ(names(out("a.h5")),
              (Names{"layers.0.convolution", "layers.0.linear1.bias", "layers.0.linear1.weight"}));
    consolidate(saved_, out("b.h5"),
                {.selection = {.include = {"layers.*", "scale"}, .exclude = {"*.linear?.*"}}});
    EXPECT_EQ(names(out("b.h5")), (Names{"layers.0.convolution", "scale"}));
    EXPECT_TRUE(toy::contains(error("c.h5", {.selection = {.include = {"layer.*"}}}),
                              "--include 'layer.*' fits none of the parameters"));
    EXPECT_TRUE(
        toy::contains(error("c.h5", {.selection = {.exclude = {"*"}}}), "leave no parameter over"));
}

TEST_F(ConsolidateOptionsTest, MomentsLieInGroupsThatReadersOfWeightsPassOver) {
    consolidate(saved_, out("all.h5"), {.selection = {.with_optimizer = true}});
    const StateFile file = StateFile::open(out("all.h5"));
    EXPECT_EQ(file.datasets().size(), 5u + 4u + 4u);
    for (const TensorEntry& tensor : toy::tensors({"scale"})) {
        std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
        file.read(consolidated_path(tensor), 0, values);
        EXPECT_EQ(values, toy::values(tensor, 10));
    }
    EXPECT_EQ(names(out("all.h5")).size(), 5u);
    EXPECT_TRUE(toy::contains(error("a.safetensors", {.selection = {.with_optimizer = true}}),
                              "--with-optimizer: a safetensors file has one tensor of a name"));
}

TEST_F(ConsolidateOptionsTest, FormatOptionGoesBeforeTheName) {
    consolidate(saved_, out("model.bin"), {.format = FileFormat::kHdf5});
    EXPECT_EQ(names(out("model.bin")).size(), 5u);
}

TEST_F(ConsolidateOptionsTest, MemoryThatIsTooSmallIsRefusedWithWhatIsNeeded) {
    EXPECT_TRUE(toy::contains(error("a.h5", {.memory_bytes = 30 << 20}),
                              "--memory 30M: this checkpoint needs at least 41M"));
    EXPECT_EQ(error("a.h5", {.memory_bytes = 41 << 20}), "no error");
}

TEST_F(ConsolidateOptionsTest, LargeOutputsBecomeShardsWithAnIndex) {
    const Consolidated done =
        consolidate(saved_, out("model.safetensors"), {.max_shard_bytes = 320});
    // In the model's order 140, then 264 + 52, then 240 + 4 bytes.
    EXPECT_EQ(done.files,
              (std::vector<fs::path>{
                  out("model-00001-of-00003.safetensors"), out("model-00002-of-00003.safetensors"),
                  out("model-00003-of-00003.safetensors"), out("model.safetensors.index.json")}));
    EXPECT_TRUE(done.complete);
    EXPECT_FALSE(fs::exists(out("model.safetensors")));
    const std::string index = read_file(out("model.safetensors.index.json"));
    EXPECT_TRUE(toy::contains(index, "\"total_size\": 700"));
    EXPECT_TRUE(toy::contains(index, R"("scale": "model-00003-of-00003.safetensors")"));
    expect_values(out("model.safetensors.index.json"), [](float value) { return value; });
    EXPECT_TRUE(toy::contains(error("model.safetensors", {.max_shard_bytes = 320}),
                              "index.json exists: choose another name"));
    EXPECT_TRUE(toy::contains(error("model.safetensors", {}), "index.json exists"));
    EXPECT_EQ(error("model.safetensors", {.overwrite = true}), "no error");
    EXPECT_FALSE(fs::exists(out("model.safetensors.index.json")));
}

TEST_F(ConsolidateOptionsTest, CopiesShareTheShardsAndTheLastOneWritesTheIndex) {
    ConsolidateOptions options{.max_shard_bytes = 320};
    const auto run = [&](std::int64_t index) {
        options.copy = {.index = index, .count = 2};
        return consolidate(saved_, out("model.safetensors"), options);
    };
    const Consolidated second = run(1);
    EXPECT_EQ(second.files, (std::vector<fs::path>{out("model-00002-of-00003.safetensors")}));
    EXPECT_FALSE(second.complete);
    EXPECT_FALSE(fs::exists(out("model.safetensors.index.json")));
    const Consolidated first = run(0);
    EXPECT_EQ(first.files.size(), 3u);
    EXPECT_TRUE(first.complete);
    expect_values(out("model.safetensors.index.json"), [](float value) { return value; });
    EXPECT_TRUE(run(1).files.empty());  // a copy that starts late finds all done

    options.max_shard_bytes = 1000;
    options.overwrite = true;
    EXPECT_TRUE(run(1).files.empty());  // a single file belongs to the first copy
    EXPECT_EQ(run(0).files.size(), 1u);
}

TEST_F(ConsolidateOptionsTest, ShardsOfAnotherCheckpointDoNotCount) {
    const fs::path other = toy::save(folder_.path(), {.step = 20, .frozen = {"scale"}});
    ConsolidateOptions options{.max_shard_bytes = 320, .copy = {.index = 1, .count = 2}};
    consolidate(other, out("model.safetensors"), options);
    options.copy.index = 0;
    EXPECT_TRUE(toy::contains(error("model.safetensors", options),
                              "model-00002-of-00003.safetensors exists"));
    options.overwrite = true;
    EXPECT_FALSE(consolidate(saved_, out("model.safetensors"), options).complete);
}

TEST_F(ConsolidateOptionsTest, ContinuesWhereAKilledRunStopped) {
    for (const char* name : {"model.h5", "model.safetensors", "model.pt"}) {
        consolidate(saved_, out(std::string("whole-") + name));
        const std::string whole = read_file(out(std::string("whole-") + name));
        interrupt(out(name), 9);
        const Consolidated done = consolidate(saved_, out(name));
        EXPECT_GE(done.bytes_found, 9 * 4) << name;
        EXPECT_LT(done.bytes_found, 700) << name;
        EXPECT_EQ(read_file(out(name)), whole) << name;
        EXPECT_FALSE(fs::exists(out(std::string(name) + ".tmp.journal")));
    }
}

TEST_F(ConsolidateOptionsTest, TakesNothingFromAKilledRunThatIsNotAsItWrote) {
    const std::string temporary = out("model.safetensors.tmp").string();
    consolidate(saved_, out("whole.safetensors"));
    const std::string whole = read_file(out("whole.safetensors"));
    const auto expect_equal = [&] {
        consolidate(saved_, out("model.safetensors"), {.overwrite = true});
        EXPECT_EQ(read_file(out("model.safetensors")), whole);
        fs::remove(out("model.safetensors"));
    };
    interrupt(out("model.safetensors"), 20);
    toy::write_text(temporary, std::string(read_file(temporary).size(), 'x'));
    expect_equal();
    interrupt(out("model.safetensors"), 20);
    fs::resize_file(temporary, 10);
    expect_equal();
    interrupt(out("model.safetensors"), 20);
    fs::remove(temporary);
    expect_equal();
    interrupt(out("model.safetensors"), 20);
    fs::resize_file(temporary + ".journal", fs::file_size(temporary + ".journal") - 3);
    expect_equal();
    interrupt(out("model.safetensors"), 20, {.dtype = DType::kBFloat16});
    expect_equal();
}

}  // namespace
}  // namespace fullshard::checkpoint
