#include "checkpoint/format/verify.h"

#include "base/files.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

class VerifyTest : public testing::Test {
  protected:
    /// All damages, a line each.
    std::string damages() const {
        std::string lines;
        const bool whole =
            verify_folder(saved_, [&](const std::string& problem) { lines += problem + "\n"; }, {});
        EXPECT_EQ(whole, lines.empty());
        return lines;
    }
    static std::ptrdiff_t lines_of(const std::string& text) {
        return std::ranges::count(text, '\n');
    }

    toy::TemporaryFolder folder_;
    fs::path saved_ = toy::save(folder_.path(), {.ranks = 3});
    Manifest manifest_ = open_folder(saved_);
    fs::path state_ = saved_ / kStateFile;
};

TEST_F(VerifyTest, WholeOneHasNoDamageAndReportsItsBytes) {
    EXPECT_EQ(damages(), "");
    std::int64_t last = 0, all = 0, bytes = 0;
    for (const TensorEntry& tensor : manifest_.tensors) bytes += tensor.numel() * 4;
    verify_folder(saved_, {}, [&](std::int64_t done, std::int64_t total) {
        EXPECT_GT(done, last);
        last = done;
        all = total;
    });
    EXPECT_EQ(last, bytes);
    EXPECT_EQ(all, bytes);
}

TEST_F(VerifyTest, EveryDamagedTensorIsNamed) {
    for (const TensorEntry& tensor : manifest_.tensors)
        toy::flip_bit(state_, tensor.parts[0].file_offset, 7);
    const std::string found = damages();
    EXPECT_EQ(lines_of(found), std::ssize(manifest_.tensors));
    for (const TensorEntry& tensor : manifest_.tensors) {
        EXPECT_TRUE(
            toy::contains(found, dataset_path(tensor.state, tensor.parameter) + ", elements [0, "));
    }
}

TEST_F(VerifyTest, EveryDamagedBlockIsNamed) {
    const TensorEntry& tensor = manifest_.tensor(State::kModel, "layers.0.linear1.weight");
    for (const Block& block : tensor.blocks)
        toy::flip_bit(state_, tensor.parts[0].file_offset + 4 * block.begin);
    EXPECT_EQ(lines_of(damages()), std::ssize(tensor.blocks));
}

TEST_F(VerifyTest, DamagedStructureIsFoundBeforeHdf5ReadsIt) {
    const std::int64_t first_tensor = in_file_order(manifest_.tensors).front().part->file_offset;
    for (const std::int64_t byte :
         {std::int64_t{0}, std::int64_t{9}, std::int64_t{40}, first_tensor - 1}) {
        toy::flip_bit(state_, byte, 3);
        EXPECT_EQ(lines_of(damages()), 1) << damages();
        EXPECT_TRUE(toy::contains(damages(), "state.h5: HDF5's structures are damaged"));
        toy::flip_bit(state_, byte, 3);
    }
    EXPECT_EQ(damages(), "");
}

TEST_F(VerifyTest, CutFileNamesTheTensorsItLacks) {
    const PlacedPart last = in_file_order(manifest_.tensors).back();
    fs::resize_file(state_, static_cast<std::uintmax_t>(last.part->file_offset + 1));
    const std::string found = damages();
    EXPECT_TRUE(
        toy::contains(found, "the manifest says " + std::to_string(manifest_.files[0].bytes)));
    EXPECT_TRUE(toy::contains(
        found, dataset_path(last.tensor->state, last.tensor->parameter) + ", elements [0, "));
    EXPECT_EQ(lines_of(found), 2);
    fs::resize_file(state_, 0);
    EXPECT_EQ(lines_of(damages()), 1 + std::ssize(manifest_.tensors));
}

TEST_F(VerifyTest, LongerFileIsDamaged) {
    fs::resize_file(state_, static_cast<std::uintmax_t>(manifest_.files[0].bytes + 1));
    EXPECT_EQ(lines_of(damages()), 1);
}

TEST_F(VerifyTest, MissingFilesAreNamed) {
    for (const std::string_view name : {kStateFile, kManifestFile, kDeckFile, kCompleteFile}) {
        fs::rename(saved_ / name, folder_.path() / "aside");
        EXPECT_EQ(lines_of(damages()), 1);
        EXPECT_TRUE(toy::contains(damages(), (saved_ / name).string()));
        fs::rename(folder_.path() / "aside", saved_ / name);
    }
    EXPECT_EQ(damages(), "");
    fs::remove_all(saved_);
    EXPECT_TRUE(toy::contains(damages(), "is no folder"));
}

TEST_F(VerifyTest, WithoutCompleteTheRestIsStillVerified) {
    fs::remove(saved_ / kCompleteFile);
    toy::flip_bit(state_, manifest_.tensors[0].parts[0].file_offset);
    EXPECT_EQ(lines_of(damages()), 2);
}

TEST_F(VerifyTest, WrongCompleteIsToldFromAWrongManifest) {
    const std::string complete = read_file(saved_ / kCompleteFile);
    toy::write_text(saved_ / kCompleteFile, "done\n");
    EXPECT_TRUE(toy::contains(damages(), "COMPLETE is damaged"));
    toy::write_text(saved_ / kCompleteFile, complete);
    const auto size = static_cast<std::int64_t>(fs::file_size(saved_ / kManifestFile));
    for (std::int64_t byte = 0; byte < size; byte += 37) {
        toy::flip_bit(saved_ / kManifestFile, byte, 1);
        EXPECT_TRUE(toy::contains(damages(), "manifest.json is damaged: its digest is ")) << byte;
        toy::flip_bit(saved_ / kManifestFile, byte, 1);
    }
}

TEST_F(VerifyTest, ChangedDeckIsDamage) {
    toy::write_text(saved_ / kDeckFile, "[train]\nsteps = 21\n");
    EXPECT_EQ(damages(), (saved_ / kDeckFile).string() + " is not the deck in the manifest\n");
}

TEST_F(VerifyTest, ManifestOfAnotherVersionIsNamed) {
    std::string text = read_file(saved_ / kManifestFile);
    const std::string version = "\"format_version\": 1";
    text.replace(text.find(version), version.size(), "\"format_version\": 2");
    toy::write_manifest_text(saved_, text);
    EXPECT_TRUE(toy::contains(damages(), "format_version is 2; this program reads version 1"));
}

TEST_F(VerifyTest, UncoveredElementsAreNamed) {
    toy::rewrite_manifest(saved_,
                          [](Manifest& manifest) { manifest.tensors[1].blocks.pop_back(); });
    EXPECT_TRUE(
        toy::contains(damages(), "/model/layers.0.linear1.weight: no block covers elements ["));
}

TEST_F(VerifyTest, ManifestThatFitsItsBytesButNotHdf5IsNamed) {
    // Two tensors of the same size changed places: every digest is right, other readers see
    // otherwise.
    toy::rewrite_manifest(saved_, [](Manifest& manifest) {
        std::swap(manifest.tensors[0].state, manifest.tensors[5].state);
    });
    EXPECT_TRUE(toy::contains(damages(), "/model/token_embedding.weight does not lie at byte "));
    toy::rewrite_manifest(saved_, [](Manifest& manifest) {
        std::swap(manifest.tensors[0].state, manifest.tensors[5].state);
        manifest.tensors[0].shape = {5, 7};
    });
    EXPECT_TRUE(toy::contains(damages(), "has shape [7, 5], the manifest says [5, 7]"));
}

TEST_F(VerifyTest, DatasetsOutsideTheManifestAreNamed) {
    const hid_t file = H5Fopen(state_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate(H5S_SCALAR);
    H5Dclose(H5Dcreate2(file, "/model/extra", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT,
                        H5P_DEFAULT));
    H5Sclose(space);
    H5Fclose(file);
    toy::rewrite_manifest(saved_, [&](Manifest& manifest) {
        manifest.files = {read_structure(state_, manifest.tensors)};
    });
    EXPECT_EQ(damages(), state_.string() + ": /model/extra is not in the manifest\n");
}

}  // namespace
}  // namespace fullshard::checkpoint
