// Every single flipped bit is found, by verify and by loading.
#include "base/error.h"
#include "base/rng.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/reader.h"
#include "checkpoint/format/verify.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

/// What a run that loads everything says about a checkpoint.
std::string load_error(const fs::path& folder) {
    return toy::error_of([&] {
        CheckpointReader reader(folder);
        for (const TensorEntry& tensor : reader.manifest().tensors) {
            std::vector<float> values(static_cast<std::size_t>(tensor.numel()));
            reader.read(tensor.state, tensor.parameter, 0, values);
        }
    });
}

bool is_whole(const fs::path& folder) {
    return verify_folder(folder, [](const std::string&) {}, {});
}

/// The files of a folder as one range of bytes.
struct Bytes {
    explicit Bytes(const fs::path& folder) {
        for (const auto& entry : fs::directory_iterator(folder)) {
            files.push_back({entry.path(), static_cast<std::int64_t>(entry.file_size())});
            count += files.back().second;
        }
    }
    void flip(std::int64_t byte, int bit) const {
        for (const auto& [path, size] : files) {
            if (byte < size) return toy::flip_bit(path, byte, bit);
            byte -= size;
        }
    }
    std::vector<std::pair<fs::path, std::int64_t>> files;
    std::int64_t count = 0;
};

class DamageTest : public testing::TestWithParam<std::int64_t> {
  protected:
    toy::TemporaryFolder folder_;
    fs::path saved_ = toy::save(folder_.path(), {.ranks = 3, .nodes = GetParam()});
};

// pytorch/torchtitan 4011: a flipped bit loads silently.
TEST_P(DamageTest, EachOfTwoHundredFlippedBitsIsFound) {
    const Bytes bytes(saved_);
    const RandomStream random(mix(GetParam(), 2024));
    for (std::uint64_t flip = 0; flip < 200; ++flip) {
        const std::int64_t byte = static_cast<std::int64_t>(
            random.bits(2 * flip) % static_cast<std::uint64_t>(bytes.count));
        const int bit = static_cast<int>(random.bits(2 * flip + 1) % 8);
        bytes.flip(byte, bit);
        EXPECT_FALSE(is_whole(saved_)) << byte << " " << bit;
        EXPECT_NE(load_error(saved_), "no error") << byte << " " << bit;
        bytes.flip(byte, bit);
    }
    EXPECT_TRUE(is_whole(saved_));
    EXPECT_EQ(load_error(saved_), "no error");
}

TEST_P(DamageTest, EveryCutFileIsFound) {
    for (const auto& [path, size] : Bytes(saved_).files) {
        for (const std::int64_t kept : {std::int64_t{0}, size / 2, size - 1}) {
            const fs::path whole = folder_.path() / "whole";
            fs::copy_file(path, whole, fs::copy_options::overwrite_existing);
            fs::resize_file(path, static_cast<std::uintmax_t>(kept));
            EXPECT_FALSE(is_whole(saved_)) << path << " " << kept;
            EXPECT_NE(load_error(saved_), "no error") << path << " " << kept;
            fs::rename(whole, path);
        }
    }
    EXPECT_EQ(load_error(saved_), "no error");
}

TEST_P(DamageTest, WithoutVerificationDataIsTakenAsItIs) {
    const Manifest manifest = open_folder(saved_);
    const TensorEntry& tensor = manifest.tensor(State::kModel, "layers.0.convolution");
    const Part& part = tensor.part_with(30);
    const auto byte = part.file_offset + 4 * (30 - part.begin);
    toy::flip_bit(saved_ / manifest.files[static_cast<std::size_t>(part.file)].name, byte);
    std::vector<float> values(10), expected = toy::values(tensor, 10);
    CheckpointReader reader(saved_, manifest, /*verifies=*/false);
    reader.read(State::kModel, tensor.parameter, 28, values);
    EXPECT_EQ(reader.bytes_read(), 40);
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(values[i] == expected[i + 28], i != 2) << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Files, DamageTest, testing::Values(1, 3));

}  // namespace
}  // namespace fullshard::checkpoint
