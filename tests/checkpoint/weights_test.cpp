#include "checkpoint/format/weights.h"

#include "base/error.h"
#include "checkpoint/export/consolidate.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <map>

namespace fullshard::checkpoint {
namespace {

class WeightsTest : public testing::Test {
  protected:
    std::filesystem::path consolidated(const char* name) const {
        consolidate(saved_, folder_.path() / name, {});
        return folder_.path() / name;
    }
    std::string error(const std::filesystem::path& path) const {
        return toy::error_of([&] { open_weights(path); });
    }

    toy::TemporaryFolder folder_;
    std::filesystem::path saved_ =
        toy::save(folder_.path(), {.ranks = 3, .frozen = {"scale", "layers.0.convolution"}});
};

TEST_F(WeightsTest, AreEqualInAllThreeForms) {
    for (const auto& path : {saved_, consolidated("model.h5"), consolidated("model.safetensors")}) {
        const auto weights = open_weights(path);
        std::map<std::string, std::vector<std::int64_t>> shapes;
        for (const auto& tensor : weights->tensors()) shapes[tensor.name] = tensor.shape;
        EXPECT_EQ(shapes.size(), 5u) << path;
        for (const TensorEntry& tensor : toy::tensors()) {
            if (tensor.state != State::kModel) continue;
            EXPECT_EQ(shapes.at(tensor.parameter), tensor.shape);
            const auto expected = toy::values(tensor, 10);
            for (std::size_t begin = 0; begin < expected.size(); ++begin) {
                std::vector<float> values(expected.size() - begin);
                weights->read(tensor.parameter, static_cast<std::int64_t>(begin), values);
                ASSERT_TRUE(std::equal(values.begin(), values.end(),
                                       expected.begin() + static_cast<std::ptrdiff_t>(begin)));
            }
        }
    }
}

TEST_F(WeightsTest, WhatIsNotThereIsAnError) {
    for (const auto& path : {saved_, consolidated("model.h5"), consolidated("model.safetensors")}) {
        const auto weights = open_weights(path);
        std::vector<float> values(14);
        EXPECT_THROW(weights->read("other", 0, values), DataError) << path;
        EXPECT_THROW(weights->read("layers.0.linear1.bias", 0, values), DataError) << path;
        EXPECT_THROW(weights->read("layers.0.linear1.bias", -1, values), DataError) << path;
    }
}

TEST_F(WeightsTest, OtherFilesAreRefused) {
    const auto path = folder_.path() / "text";
    EXPECT_TRUE(toy::contains(error(path), "No such file"));
    toy::write_text(path, "short");
    EXPECT_TRUE(toy::contains(error(path), "is neither a checkpoint folder nor"));
    const auto empty = folder_.path() / "empty";
    std::filesystem::create_directory(empty);
    EXPECT_TRUE(toy::contains(error(empty), "empty"));
    EXPECT_TRUE(
        toy::contains(error(saved_ / kStateFile), "for a checkpoint's own file name its folder"));
}

TEST_F(WeightsTest, AFolderOfCheckpointsStandsForItsNewest) {
    EXPECT_EQ(open_weights(folder_.path())->tensors().size(),
              open_weights(saved_)->tensors().size());
}

TEST_F(WeightsTest, CutFilesAreRefused) {
    for (const char* name : {"model.h5", "model.safetensors"}) {
        const auto path = consolidated(name);
        std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
        EXPECT_THROW(open_weights(path), DataError) << name;
    }
}

TEST_F(WeightsTest, LinksToOtherFilesAreNotFollowed) {
    const auto path = consolidated("model.h5");
    std::filesystem::copy(path, folder_.path() / "other.h5");
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    ASSERT_GE(H5Lcreate_external("other.h5", "/scale", file, "foreign", H5P_DEFAULT, H5P_DEFAULT),
              0);
    H5Fclose(file);
    EXPECT_EQ(open_weights(path)->tensors().size(), 5u);
}

TEST_F(WeightsTest, RingsOfGroupsEnd) {
    const auto path = consolidated("model.h5");
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    ASSERT_GE(H5Lcreate_hard(file, "/", file, "ring", H5P_DEFAULT, H5P_DEFAULT), 0);
    H5Fclose(file);
    EXPECT_TRUE(toy::contains(error(path), "groups nest too deep"));
}

}  // namespace
}  // namespace fullshard::checkpoint
