#include "checkpoint/format/reader.h"

#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

namespace fullshard::checkpoint {
namespace {

std::vector<float> read(CheckpointReader& reader, const TensorEntry& tensor, std::int64_t begin,
                        std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(end - begin));
    reader.read(tensor.state, tensor.parameter, begin, values);
    return values;
}

class ReaderTest : public testing::Test {
  protected:
    toy::TemporaryFolder folder_;
};

TEST_F(ReaderTest, EveryRangeIsEqualWhoeverWrote) {
    for (const std::int64_t ranks : {1, 2, 3, 4, 7}) {
        CheckpointReader reader(toy::save(folder_.path(), {.step = ranks, .ranks = ranks}));
        for (const TensorEntry& tensor : toy::tensors()) {
            const std::vector<float> expected = toy::values(tensor, ranks);
            for (std::int64_t begin = 0; begin <= tensor.numel(); ++begin) {
                for (std::int64_t end = begin; end <= tensor.numel(); ++end) {
                    ASSERT_EQ(read(reader, tensor, begin, end),
                              std::vector<float>(expected.begin() + begin, expected.begin() + end))
                        << tensor.parameter << " " << begin << " " << end;
                }
            }
        }
    }
}

TEST_F(ReaderTest, NeighbouringRangesReadEachByteOnce) {
    CheckpointReader reader(toy::save(folder_.path(), {.ranks = 3}));
    std::int64_t bytes = 0;
    for (const TensorEntry& tensor : toy::tensors()) {
        for (std::int64_t rank = 0; rank < 4; ++rank) {
            read(reader, tensor, tensor.numel() * rank / 4, tensor.numel() * (rank + 1) / 4);
        }
        bytes += tensor.numel() * 4;
    }
    EXPECT_EQ(reader.bytes_read(), bytes);
}

TEST_F(ReaderTest, RangeCostsAtMostOneBlockMoreAtEitherEnd) {
    CheckpointReader reader(toy::save(folder_.path()));
    const TensorEntry tensor = reader.manifest().tensor(State::kModel, "layers.0.linear1.weight");
    read(reader, tensor, 10, 30);  // blocks have 7 elements: [7, 35)
    EXPECT_EQ(reader.bytes_read(), 28 * 4);
}

TEST_F(ReaderTest, DamageIsNamedByThoseWhoReadItAndNoOthers) {
    const auto saved = toy::save(folder_.path());
    const Manifest manifest = open_folder(saved);
    const TensorEntry& tensor = manifest.tensor(State::kFirstMoment, "layers.0.linear1.weight");
    toy::flip_bit(saved / kStateFile, tensor.parts[0].file_offset + 4 * 23, 6);
    CheckpointReader reader(saved);
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { read(reader, tensor, 22, 23); }),
                      (saved / kStateFile).string() +
                          ": /optimizer/exp_avg/layers.0.linear1.weight, elements [21, 28): "
                          "damaged: the digest is "));
    EXPECT_THROW(read(reader, tensor, 0, tensor.numel()), DataError);
    EXPECT_EQ(read(reader, tensor, 0, 21).front(), toy::value(tensor, 10, 0));
    EXPECT_EQ(read(reader, tensor, 28, 30).front(), toy::value(tensor, 10, 28));
}

TEST_F(ReaderTest, DamagedBlockDoesNotStayInTheCache) {
    const auto saved = toy::save(folder_.path());
    CheckpointReader reader(saved);
    const TensorEntry tensor = reader.manifest().tensor(State::kModel, "layers.0.linear1.bias");
    toy::flip_bit(saved / kStateFile, tensor.parts[0].file_offset, 0);
    EXPECT_THROW(read(reader, tensor, 0, 1), DataError);
    EXPECT_THROW(read(reader, tensor, 1, 2), DataError);
}

TEST_F(ReaderTest, EveryFlippedBitOfAnElementIsFound) {
    const auto saved = toy::save(folder_.path());
    CheckpointReader reader(saved);
    const TensorEntry tensor = reader.manifest().tensor(State::kModel, "layers.0.convolution");
    for (int bit = 0; bit < 32; ++bit) {
        const std::int64_t byte = tensor.parts[0].file_offset + 4 * 59 + bit / 8;
        toy::flip_bit(saved / kStateFile, byte, bit % 8);
        EXPECT_THROW(read(reader, tensor, 0, tensor.numel()), DataError) << bit;
        toy::flip_bit(saved / kStateFile, byte, bit % 8);
    }
    EXPECT_EQ(read(reader, tensor, 0, tensor.numel()), toy::values(tensor, 10));
}

TEST_F(ReaderTest, ShortFileIsNamedWithTheElementsItLacks) {
    const auto saved = toy::save(folder_.path());
    const Manifest manifest = open_folder(saved);
    const TensorEntry& tensor = manifest.tensor(State::kModel, "layers.0.linear1.bias");
    std::filesystem::resize_file(saved / kStateFile,
                                 static_cast<std::uintmax_t>(tensor.parts[0].file_offset + 30));
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { CheckpointReader{saved}; }), "the manifest says"));
    CheckpointReader reader(saved, manifest);
    EXPECT_EQ(read(reader, tensor, 0, 7).back(), toy::value(tensor, 10, 6));
    EXPECT_TRUE(toy::contains(toy::error_of([&] { read(reader, tensor, 6, 8); }),
                              "/model/layers.0.linear1.bias, elements [7, 13): "));
}

TEST_F(ReaderTest, WhatIsNotThereIsNamed) {
    CheckpointReader reader(toy::save(folder_.path()));
    std::vector<float> values(2);
    EXPECT_TRUE(
        toy::contains(toy::error_of([&] { reader.read(State::kModel, "other", 0, values); }),
                      "has no tensor /model/other"));
    EXPECT_TRUE(toy::contains(
        toy::error_of([&] { reader.read(State::kModel, "layers.0.linear1.bias", 12, values); }),
        "elements [12, 14) are outside of its 13"));
    EXPECT_THROW(reader.read(State::kModel, "scale", -1, values), DataError);
}

}  // namespace
}  // namespace fullshard::checkpoint
