// Checkpoints of which each node wrote a file of its own.
#include "base/error.h"
#include "base/files.h"
#include "checkpoint/export/consolidate.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/verify.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cmath>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

class NodeFilesTest : public testing::Test {
  protected:
    std::string damages() const {
        std::string lines;
        verify_folder(saved_, [&](const std::string& problem) { lines += problem + "\n"; }, {});
        return lines;
    }
    /// What h5py would see in index.h5.
    std::vector<float> view(const TensorEntry& tensor) const {
        const hid_t file = H5Fopen((saved_ / kIndexFile).c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
        const hid_t dataset =
            H5Dopen2(file, dataset_path(tensor.state, tensor.parameter).c_str(), H5P_DEFAULT);
        const hid_t space = H5Dget_space(dataset);
        std::vector<hsize_t> shape(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
        H5Sget_simple_extent_dims(space, shape.data(), nullptr);
        EXPECT_EQ((std::vector<std::int64_t>(shape.begin(), shape.end())), tensor.shape);
        std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
        EXPECT_GE(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
                  0);
        H5Sclose(space);
        H5Dclose(dataset);
        H5Fclose(file);
        return values;
    }

    toy::TemporaryFolder folder_;
    fs::path saved_ = toy::save(folder_.path() / "run", {.ranks = 5, .nodes = 3});
};

TEST_F(NodeFilesTest, FilesAndPartsAreAsFormatMdSays) {
    const Manifest manifest = open_folder(saved_);
    ASSERT_EQ(manifest.files.size(), 4u);
    EXPECT_EQ(manifest.files[0].name, "state-0000.h5");
    EXPECT_EQ(manifest.files[2].name, "state-0002.h5");
    EXPECT_EQ(manifest.files[3].name, "index.h5");
    // 35 elements over ranks 0 and 1, 2 and 3, 4: ranges next to each other in one file are a part.
    const TensorEntry& tensor = manifest.tensor(State::kModel, "token_embedding.weight");
    ASSERT_EQ(tensor.parts.size(), 3u);
    EXPECT_EQ(tensor.parts[1].file, 1);
    EXPECT_EQ(tensor.parts[1].begin, 14);
    EXPECT_EQ(tensor.parts[1].count, 14);
    EXPECT_EQ(damages(), "");
}

TEST_F(NodeFilesTest, EveryRangeIsAsInOneFile) {
    CheckpointReader reader(saved_);
    for (const TensorEntry& tensor : toy::tensors()) {
        const std::vector<float> expected = toy::values(tensor, 10);
        for (std::int64_t begin = 0; begin <= tensor.numel(); ++begin) {
            for (std::int64_t end = begin; end <= tensor.numel(); ++end) {
                std::vector<float> values(static_cast<std::size_t>(end - begin));
                reader.read(tensor.state, tensor.parameter, begin, values);
                ASSERT_EQ(values,
                          std::vector<float>(expected.begin() + begin, expected.begin() + end))
                    << tensor.parameter << " " << begin << " " << end;
            }
        }
    }
}

TEST_F(NodeFilesTest, ConsolidatesToTheSameBytes) {
    const fs::path one = toy::save(folder_.path() / "one");
    for (const char* name : {"model.h5", "model.safetensors"}) {
        consolidate(saved_, folder_.path() / name, {});
        consolidate(one, folder_.path() / "one" / name, {});
        EXPECT_EQ(read_file(folder_.path() / name), read_file(folder_.path() / "one" / name));
    }
}

TEST_F(NodeFilesTest, IndexShowsWholeTensorsWhereverTheFolderIs) {
    const fs::path moved = folder_.path() / "moved";
    fs::rename(saved_, moved);
    saved_ = moved;
    for (const TensorEntry& tensor : toy::tensors()) {
        EXPECT_EQ(view(tensor), toy::values(tensor, 10)) << tensor.parameter;
    }
}

TEST_F(NodeFilesTest, MissingFileIsAnErrorForUsAndNanInTheIndex) {
    fs::remove(saved_ / "state-0001.h5");
    EXPECT_TRUE(toy::contains(damages(), "state-0001.h5: No such file"));
    EXPECT_TRUE(toy::contains(toy::error_of([&] { open_folder(saved_); }), "state-0001.h5"));
    const TensorEntry tensor = toy::tensors().front();
    const std::vector<float> seen = view(tensor), expected = toy::values(tensor, 10);
    for (std::size_t i = 0; i < seen.size(); ++i) {
        const bool lost = i >= 14 && i < 28;
        EXPECT_TRUE(lost ? std::isnan(seen[i]) : seen[i] == expected[i]) << i;
    }
}

TEST_F(NodeFilesTest, DamageInEveryFileIsFound) {
    for (const FileEntry& file : open_folder(saved_).files) {
        for (std::int64_t byte = 0; byte < file.bytes; byte += 1 + file.bytes / 60) {
            toy::flip_bit(saved_ / file.name, byte, 2);
            EXPECT_TRUE(toy::contains(damages(), file.name)) << file.name << " " << byte;
            toy::flip_bit(saved_ / file.name, byte, 2);
        }
    }
    EXPECT_EQ(damages(), "");
}

TEST_F(NodeFilesTest, ExchangedFilesAreFound) {
    fs::rename(saved_ / "state-0000.h5", saved_ / "aside");
    fs::rename(saved_ / "state-0001.h5", saved_ / "state-0000.h5");
    fs::rename(saved_ / "aside", saved_ / "state-0001.h5");
    EXPECT_TRUE(toy::contains(damages(), "state-0000.h5"));
}

/// What reading says of a manifest that a faulty writer might make.
std::string written(const Manifest& manifest, const std::function<void(Manifest&)>& change) {
    Manifest changed = manifest;
    change(changed);
    return toy::error_of([&] { parse_manifest(to_json(changed), "ORIGIN"); });
}

TEST_F(NodeFilesTest, PartsCoverEveryElementOnceInFilesThatExist) {
    const Manifest whole = open_folder(saved_);
    const auto error = [&](auto change) {
        return written(whole, [&](Manifest& manifest) { change(manifest.tensors[0].parts); });
    };
    using Parts = std::vector<Part>;
    const std::string tensor = "ORIGIN: tensor /model/token_embedding.weight: ";
    EXPECT_EQ(error([](Parts&) {}), "no error");
    EXPECT_EQ(error([](Parts& parts) { parts.pop_back(); }),
              tensor + "no part covers elements [28, 35)");
    EXPECT_EQ(error([](Parts& parts) { parts[0].count = 15; }),
              tensor + "elements from 14 on are covered twice");
    EXPECT_EQ(error([](Parts& parts) { parts[2].count = 8; }),
              tensor + "the part at element 28 reaches past its 35 elements");
    EXPECT_EQ(error([](Parts& parts) { parts[0].count = 0; }),
              tensor + "the part at element 0 has 0 elements");
    EXPECT_EQ(error([](Parts& parts) { parts[1].file = 4; }), tensor + "file 4 is not listed");
    EXPECT_EQ(error([](Parts& parts) { parts[1].file = 3; }),
              tensor + "index.h5 holds no raw data");
    EXPECT_TRUE(toy::contains(error([](Parts& parts) { parts[1].file_offset = 1 << 30; }),
                              tensor + "56 bytes at 1073741824 lie outside the"));
    EXPECT_TRUE(toy::contains(written(whole,
                                      [](Manifest& manifest) {
                                          manifest.tensors[0].blocks = {{0, 35, 0}};
                                      }),
                              tensor + "the block at element 0 lies in two parts"));
}

TEST_F(NodeFilesTest, NamesOfFilesAreFixed) {
    const Manifest whole = open_folder(saved_);
    const auto error = [&](auto change) {
        return written(whole, [&](Manifest& manifest) { change(manifest.files); });
    };
    using Files = std::vector<FileEntry>;
    EXPECT_EQ(error([](Files& files) { files[1].name = "../state-0001.h5"; }),
              "ORIGIN: files[1].name must be state-0001.h5");
    EXPECT_EQ(error([](Files& files) { files.pop_back(); }),
              "ORIGIN: files[2].name must be index.h5");
    EXPECT_EQ(error([](Files& files) { files.clear(); }), "ORIGIN: files is empty");
}

TEST_F(NodeFilesTest, PartsOfOneFileFollowOneAnother) {
    // Replicas divide shards, so that a node may hold every other range.
    std::vector<TensorEntry> tensors = toy::tensors();
    tensors.resize(1);
    place_by_holder(tensors, {{0, 0, 0, 10}, {0, 1, 10, 10}, {0, 0, 20, 10}, {0, 1, 30, 5}});
    ASSERT_EQ(tensors[0].parts.size(), 4u);
    for (std::int64_t file = 0; file < 2; ++file) {
        create_state_file(folder_.path(), tensors, file, 2);
    }
    EXPECT_EQ(index_in_dataset(tensors[0], 23), 13);
    EXPECT_EQ(index_in_dataset(tensors[0], 31), 11);
}

}  // namespace
}  // namespace fullshard::checkpoint
