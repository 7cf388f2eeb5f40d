#include "checkpoint/export/import.h"

#include "base/error.h"
#include "checkpoint/export/consolidate.h"
#include "checkpoint/format/fit.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/verify.h"
#include "checkpoint/format/weights.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

class ImportTest : public testing::Test {
  protected:
    fs::path consolidated(const char* name, const ConsolidateOptions& options = {}) const {
        consolidate(saved_, folder_.path() / name, options);
        return folder_.path() / name;
    }

    toy::TemporaryFolder folder_;
    fs::path saved_ = toy::save(folder_.path(), {.ranks = 3});
};

TEST_F(ImportTest, BringsEveryFormBack) {
    consolidated("shards.safetensors", {.max_shard_bytes = 320});
    const std::vector<fs::path> sources = {consolidated("model.safetensors"),
                                           consolidated("model.h5"),
                                           folder_.path() / "shards.safetensors.index.json"};
    for (const fs::path& source : sources) {
        const fs::path parent = folder_.path() / (source.filename().string() + ".run");
        const fs::path made = import_weights(source, parent).folder;
        EXPECT_EQ(made, parent / "step-00000000");
        EXPECT_TRUE(
            verify_folder(made, [](const std::string& problem) { ADD_FAILURE() << problem; }, {}));
        const auto weights = open_weights(made);
        EXPECT_EQ(weights->tensors().size(), 5u);
        for (const TensorEntry& tensor : toy::tensors()) {
            if (tensor.state != State::kModel) continue;
            std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
            weights->read(tensor.parameter, 0, values);
            EXPECT_EQ(values, toy::values(tensor, 10)) << tensor.parameter;
        }
    }
}

TEST_F(ImportTest, HasNoMomentsAndFitsAModelThatWillTrain) {
    const fs::path made = import_weights(consolidated("model.h5"), folder_.path() / "run").folder;
    const Manifest manifest = open_folder(made);
    EXPECT_EQ(manifest.progress, Progress());
    std::vector<NamedShape> model;
    for (const TensorEntry& tensor : manifest.tensors) {
        EXPECT_EQ(tensor.state, State::kModel);
        model.push_back({tensor.parameter, tensor.shape});
    }
    EXPECT_FALSE(has_moments(manifest));
    EXPECT_EQ(toy::error_of([&] { check_state(manifest, model, "it", has_moments(manifest)); }),
              "no error");
    EXPECT_TRUE(has_moments(open_folder(saved_)));
}

TEST_F(ImportTest, ReplacesOnlyWhenTold) {
    const fs::path source = consolidated("model.safetensors");
    import_weights(source, folder_.path() / "run");
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { import_weights(source, folder_.path() / "run"); }),
                      "step-00000000 exists: choose another folder"));
    EXPECT_EQ(import_weights(source, folder_.path() / "run", {.overwrite = true}).folder,
              folder_.path() / "run" / "step-00000000");
}

TEST_F(ImportTest, DamagedAndForeignSourcesLeaveNoCheckpoint) {
    const fs::path source = consolidated("model.safetensors");
    fs::resize_file(source, fs::file_size(source) - 1);
    EXPECT_THROW(import_weights(source, folder_.path() / "run"), DataError);
    const std::string header = R"({"a/b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} )";
    std::string text(8, '\0');
    text[0] = static_cast<char>(header.size());
    toy::write_text(source, text + header + "1234");
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { import_weights(source, folder_.path() / "run"); }),
                      "tensor 'a/b' cannot be a parameter's name"));
    const std::string whole_numbers = R"({"n":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}  )";
    text[0] = static_cast<char>(whole_numbers.size());
    toy::write_text(source, text.substr(0, 8) + whole_numbers + "1234");
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { import_weights(source, folder_.path() / "run"); }),
                      "tensor 'n' is of type I32, which is not read"));
    EXPECT_FALSE(fs::exists(folder_.path() / "run"));
}

TEST_F(ImportTest, IndexAndFilesMustAgree) {
    consolidated("m.safetensors", {.max_shard_bytes = 320});
    const fs::path index = folder_.path() / "m.safetensors.index.json";
    const auto error = [&](const std::string& text) {
        toy::write_text(index, text);
        return toy::error_of([&] { open_weights(index); });
    };
    const std::string first = R"("token_embedding.weight":"m-00001-of-00003.safetensors")";
    EXPECT_EQ(error(R"({"weight_map":{)" + first + "}}"), "no error");
    EXPECT_TRUE(
        toy::contains(error(R"({"weight_map":{"x":"m-00001-of-00003.safetensors",)" + first + "}}"),
                      "tensor 'x' is not in m-00001"));
    EXPECT_TRUE(toy::contains(error(R"({"weight_map":{"scale":"m-00003-of-00003.safetensors"}})"),
                              "tensor 'layers.0.convolution' is in"));
    EXPECT_TRUE(toy::contains(error(R"({"weight_map":{"a":"../m-00001-of-00003.safetensors"}})"),
                              "is not in the index's folder"));
    EXPECT_TRUE(toy::contains(error(R"({"weight_map":{"a":1}})"), "must be a text"));
    EXPECT_TRUE(toy::contains(error(R"({"weight_map":{}})"), "names no tensors"));
    EXPECT_TRUE(toy::contains(error("[]"), "is no JSON object"));
    EXPECT_TRUE(
        toy::contains(error(R"({"weight_map":{"a":"absent.safetensors"}})"), "No such file"));
}

}  // namespace
}  // namespace fullshard::checkpoint
