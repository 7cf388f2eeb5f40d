#include "checkpoint/format/state_file.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <cstring>
#include <numeric>

namespace fullshard::checkpoint {
namespace {

class StateFileTest : public testing::Test {
  protected:
    /// A file with one tensor "w" of the model.
    TensorEntry create(std::vector<std::int64_t> shape) {
        std::vector<TensorEntry> tensors(1);
        tensors[0].parameter = "w";
        tensors[0].shape = std::move(shape);
        place_in_one_file(tensors);
        create_state_file(folder_.path(), tensors);
        return tensors[0];
    }
    /// Makes "/other" with bare HDF5 calls.
    void add_dataset(hid_t type, hid_t properties) {
        const hid_t file = H5Fopen(file_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
        const hsize_t extent = 4;
        const hid_t space = H5Screate_simple(1, &extent, nullptr);
        const hid_t dataset =
            H5Dcreate2(file, "/other", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
        EXPECT_GE(dataset, 0);
        H5Dclose(dataset);
        H5Sclose(space);
        H5Fclose(file);
    }

    toy::TemporaryFolder folder_;
    std::filesystem::path file_ = folder_.path() / "state.h5";
};

std::vector<float> counting(std::int64_t count, float first = 1) {
    std::vector<float> values(static_cast<std::size_t>(count));
    std::iota(values.begin(), values.end(), first);
    return values;
}

class StateFileCuts : public StateFileTest,
                      public testing::WithParamInterface<std::vector<std::int64_t>> {};

TEST_P(StateFileCuts, EveryRangeIsWrittenAndReadInRowMajorOrder) {
    const TensorEntry tensor = create(GetParam());
    const std::int64_t count = tensor.numel();
    StateFile file = StateFile::open_to_write(file_);
    std::vector<float> expected = counting(count);
    file.write("/model/w", 0, expected);
    for (std::int64_t begin = 0; begin < count; ++begin) {
        for (std::int64_t end = begin + 1; end <= count; ++end) {
            const auto part = counting(end - begin, static_cast<float>(1000 * begin + end));
            file.write("/model/w", begin, part, /*max_call_bytes=*/12);
            std::ranges::copy(part, expected.begin() + begin);
            std::vector<float> read(part.size());
            file.read("/model/w", begin, read);
            ASSERT_EQ(read, part) << begin << " " << end;
        }
        std::vector<float> whole(expected.size());
        file.read("/model/w", 0, whole);
        ASSERT_EQ(whole, expected) << begin;
    }
    file.close();
    // The raw bytes at the offset are what readers without HDF5 see.
    const std::string bytes = read_file(file_);
    const auto raw = std::span(expected);
    EXPECT_EQ(std::memcmp(bytes.data() + tensor.parts[0].file_offset, raw.data(), raw.size_bytes()),
              0);
}

INSTANTIATE_TEST_SUITE_P(Dimensions, StateFileCuts,
                         testing::Values(std::vector<std::int64_t>{}, std::vector<std::int64_t>{13},
                                         std::vector<std::int64_t>{4, 7},
                                         std::vector<std::int64_t>{3, 2, 4},
                                         std::vector<std::int64_t>{2, 1, 3, 2}));

TEST_F(StateFileTest, AnyReaderSeesFullShapesInTheModelsOrder) {
    toy::save(folder_.path(), {.step = 3, .ranks = 4});
    const auto path = folder_.path() / folder_name(3) / kStateFile;
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    for (const TensorEntry& tensor : toy::tensors()) {
        const std::string name = dataset_path(tensor.state, tensor.parameter);
        const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
        ASSERT_GE(dataset, 0) << name;
        const hid_t space = H5Dget_space(dataset);
        std::vector<hsize_t> shape(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
        H5Sget_simple_extent_dims(space, shape.data(), nullptr);
        EXPECT_EQ((std::vector<std::int64_t>(shape.begin(), shape.end())), tensor.shape);
        std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
        H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
        EXPECT_EQ(values, toy::values(tensor, 3));
        H5Sclose(space);
        H5Dclose(dataset);
    }
    char first[64] = {};
    H5Lget_name_by_idx(file, "model", H5_INDEX_CRT_ORDER, H5_ITER_INC, 0, first, sizeof first,
                       H5P_DEFAULT);
    EXPECT_STREQ(first, "token_embedding.weight");
    H5Fclose(file);
}

TEST_F(StateFileTest, EqualTensorsGiveEqualBytes) {
    toy::save(folder_.path() / "one", {.step = 3, .ranks = 1});
    toy::save(folder_.path() / "four", {.step = 3, .ranks = 4});
    EXPECT_EQ(read_file(folder_.path() / "one" / folder_name(3) / kStateFile),
              read_file(folder_.path() / "four" / folder_name(3) / kStateFile));
}

TEST_F(StateFileTest, LargeTensorsBeginOnPages) {
    std::vector<TensorEntry> tensors(3);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        tensors[i].parameter = std::to_string(i);
        tensors[i].shape = {20011};
    }
    place_in_one_file(tensors);
    create_state_file(folder_.path(), tensors);
    for (const TensorEntry& tensor : tensors) EXPECT_EQ(tensor.parts[0].file_offset % 4096, 0);
}

TEST_F(StateFileTest, StructureIsAllButTheTensors) {
    std::vector<TensorEntry> tensors = {create({5, 3})};
    const FileEntry before = read_structure(file_, tensors);
    EXPECT_EQ(before.bytes, static_cast<std::int64_t>(std::filesystem::file_size(file_)));
    for (std::int64_t byte = 0; byte < before.bytes; byte += byte < 4096 ? 1 : 61) {
        toy::flip_bit(file_, byte, 5);
        const bool in_tensor =
            byte >= tensors[0].parts[0].file_offset && byte < tensors[0].parts[0].end_offset();
        EXPECT_EQ((read_structure(file_, tensors) == before), in_tensor) << byte;
        toy::flip_bit(file_, byte, 5);
    }
}

TEST_F(StateFileTest, ListsItsDatasets) {
    toy::write_state(folder_.path(), {});
    const auto datasets = StateFile::open(file_).datasets();
    ASSERT_EQ(datasets.size(), toy::tensors().size());
    EXPECT_EQ(datasets.front(), "/model/layers.0.convolution");
    EXPECT_EQ(datasets.back(), "/optimizer/exp_avg_sq/token_embedding.weight");
}

TEST_F(StateFileTest, ErrorsNameFileDatasetAndReason) {
    create({4, 2});
    const StateFile file = StateFile::open(file_);
    std::vector<float> values(3);
    EXPECT_TRUE(toy::contains(toy::error_of([&] { file.shape("/model/v"); }),
                              file_.string() + ": /model/v: "));
    EXPECT_TRUE(toy::contains(toy::error_of([&] { file.read("/model/w", 6, values); }),
                              "elements [6, 9) are outside of its 8"));
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { file.write("/model/w", 0, values); }), "/model/w: "));
    const auto absent = folder_.path() / "absent.h5";
    EXPECT_THROW(StateFile::open(absent), DataError);
    EXPECT_TRUE(toy::contains(toy::error_of([&] { StateFile::open(absent); }), "No such file"));
    std::vector<TensorEntry> none;
    EXPECT_THROW(create_state_file(folder_.path() / "absent", none), RunError);
}

TEST_F(StateFileTest, OtherKindsOfDatasetsAreRefused) {
    create({4});
    add_dataset(H5T_IEEE_F64LE, H5P_DEFAULT);
    EXPECT_TRUE(toy::contains(toy::error_of([&] { StateFile::open(file_).shape("/other"); }),
                              "no little-endian float32"));
}

TEST_F(StateFileTest, ValuesInOtherFilesAreRefused) {
    create({4});
    const hid_t properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(properties, "elsewhere.bin", 0, 16);
    add_dataset(H5T_IEEE_F32LE, properties);
    H5Pclose(properties);
    EXPECT_TRUE(toy::contains(toy::error_of([&] { StateFile::open(file_).shape("/other"); }),
                              "in other files"));
}

}  // namespace
}  // namespace fullshard::checkpoint
