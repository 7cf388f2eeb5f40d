#include "checkpoint/export/consolidate.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/state_file.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

class ConsolidateTest : public testing::Test {
  protected:
    std::string error(const fs::path& out, const ConsolidateOptions& options = {}) const {
        return toy::error_of([&] { consolidate(saved_, out, options); });
    }

    toy::TemporaryFolder folder_;
    fs::path saved_ = toy::save(folder_.path(), {.ranks = 3});
};

TEST_F(ConsolidateTest, Hdf5HasFullShapesAtTheRoot) {
    const fs::path out = folder_.path() / "model.h5";
    consolidate(saved_, out, {});
    const StateFile file = StateFile::open(out);
    EXPECT_EQ(file.datasets(),
              (std::vector<std::string>{"/layers.0.convolution", "/layers.0.linear1.bias",
                                        "/layers.0.linear1.weight", "/scale",
                                        "/token_embedding.weight"}));
    for (const TensorEntry& tensor : toy::tensors()) {
        if (tensor.state != State::kModel) continue;
        EXPECT_EQ(file.shape("/" + tensor.parameter), tensor.shape);
        std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
        file.read("/" + tensor.parameter, 0, values);
        EXPECT_EQ(values, toy::values(tensor, 10));
    }
}

TEST_F(ConsolidateTest, SafetensorsIsReadableByItsSpecificationAlone) {
    const fs::path out = folder_.path() / "model.safetensors";
    consolidate(saved_, out, {});
    const std::string bytes = read_file(out);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), 8);
    const auto header = nlohmann::json::parse(bytes.substr(8, length));
    EXPECT_EQ(header.size(), 6u);
    EXPECT_EQ(header["__metadata__"]["format"], "pt");
    std::size_t end = 0;
    for (const TensorEntry& tensor : toy::tensors()) {
        if (tensor.state != State::kModel) continue;
        const auto& entry = header.at(tensor.parameter);
        EXPECT_EQ(entry["dtype"], "F32");
        EXPECT_EQ(entry["shape"], tensor.shape);
        std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
        const std::size_t begin = entry["data_offsets"][0];
        std::memcpy(values.data(), bytes.data() + 8 + length + begin, values.size() * 4);
        EXPECT_EQ(values, toy::values(tensor, 10));
        end = std::max(end, entry["data_offsets"][1].get<std::size_t>());
    }
    EXPECT_EQ(bytes.size(), 8 + length + end);
}

TEST_F(ConsolidateTest, ReportsEveryByte) {
    std::int64_t done = 0, total = 0;
    const auto note = [&](std::int64_t now, std::int64_t all) {
        EXPECT_GT(now, done);
        done = now;
        total = all;
    };
    consolidate(saved_, folder_.path() / "model.h5", {.progress = note});
    EXPECT_EQ(done, (7 * 5 + 6 * 11 + 13 + 3 * 4 * 5 + 1) * 4);
    EXPECT_EQ(total, done);
}

TEST_F(ConsolidateTest, ReplacesOnlyWhenTold) {
    const fs::path out = folder_.path() / "model.safetensors";
    toy::write_text(out, "precious");
    EXPECT_TRUE(toy::contains(error(out), "exists"));
    EXPECT_EQ(read_file(out), "precious");
    EXPECT_EQ(error(out, {.overwrite = true}), "no error");
    EXPECT_NE(read_file(out), "precious");
}

TEST_F(ConsolidateTest, WrongOutputsAreNamed) {
    EXPECT_TRUE(
        toy::contains(error(folder_.path() / "model.bin"), "must end in .h5, .safetensors or .pt"));
    fs::create_directory(folder_.path() / "folder.h5");
    EXPECT_TRUE(
        toy::contains(error(folder_.path() / "folder.h5", {.overwrite = true}), "is a folder"));
    EXPECT_THROW(consolidate(saved_, folder_.path() / "absent" / "model.h5", {}), RunError);
    EXPECT_THROW(consolidate(saved_, folder_.path() / "absent" / "model.safetensors", {}),
                 RunError);
}

TEST_F(ConsolidateTest, DamagedSourceLeavesNothingBehindAndTheOldFileAsItWas) {
    const TensorEntry tensor = open_folder(saved_).tensor(State::kModel, "layers.0.convolution");
    toy::flip_bit(saved_ / kStateFile, tensor.parts[0].file_offset + 100, 2);
    for (const char* name : {"model.h5", "model.safetensors"}) {
        const fs::path out = folder_.path() / name;
        toy::write_text(out, "precious");
        EXPECT_TRUE(toy::contains(error(out, {.overwrite = true}), "/model/layers.0.convolution"));
        EXPECT_EQ(read_file(out), "precious");
        EXPECT_FALSE(fs::exists(out.string() + ".tmp"));
    }
}

TEST_F(ConsolidateTest, LeftoversOfAKilledRunAreNoObstacle) {
    for (const char* name : {"model.h5", "model.safetensors"}) {
        const fs::path out = folder_.path() / name;
        toy::write_text(out.string() + ".tmp", "half");
        EXPECT_EQ(error(out), "no error");
        EXPECT_FALSE(fs::exists(out.string() + ".tmp"));
    }
}

TEST_F(ConsolidateTest, CheckpointWithoutWeightsIsAnError) {
    toy::rewrite_manifest(saved_, [&](Manifest& manifest) {
        std::erase_if(manifest.tensors,
                      [](const auto& tensor) { return tensor.state == State::kModel; });
        manifest.files = {read_structure(saved_ / kStateFile, manifest.tensors)};
    });
    EXPECT_TRUE(toy::contains(error(folder_.path() / "model.h5"), "holds no model weights"));
}

}  // namespace
}  // namespace fullshard::checkpoint
