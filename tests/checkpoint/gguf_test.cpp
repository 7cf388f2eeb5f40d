#include "checkpoint/format/gguf.h"

#include "base/error.h"
#include "checkpoint/format/gguf_weights.h"
#include "checkpoint/little_endian.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace fullshard::checkpoint {
namespace {

using toy::LittleEndian;

constexpr std::uint32_t kU32 = 4, kI8 = 1, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10,
                        kF64 = 12;

LittleEndian start(std::uint64_t tensors, std::uint64_t pairs, std::uint32_t version = 3) {
    LittleEndian bytes;
    bytes.raw("GGUF").u32(version).u64(tensors).u64(pairs);
    return bytes;
}

/// A tensor's description; extents in the file's order, fastest first.
void describe(LittleEndian& bytes, std::string_view name, const std::vector<std::uint64_t>& extents,
              std::uint32_t type, std::uint64_t offset) {
    bytes.text(name).u32(extents.size());
    for (const std::uint64_t extent : extents) bytes.u64(extent);
    bytes.u32(type).u64(offset);
}

class GgufTest : public testing::Test {
  protected:
    GgufHeader read(const std::string& bytes) const {
        toy::write_text(path(), bytes);
        return read_gguf_header(PosixFile::open(path()));
    }
    std::string error(const std::string& bytes) const {
        return toy::error_of([&] { read(bytes); });
    }
    /// The error of a file with one tensor and 64 bytes behind the header.
    std::string error_of_tensor(const std::function<void(LittleEndian&)>& description) const {
        LittleEndian bytes = start(1, 0);
        description(bytes);
        return error(bytes.pad_to(32).raw(std::string(64, '\0')).bytes());
    }
    std::filesystem::path path() const { return folder_.path() / "model.gguf"; }

    toy::TemporaryFolder folder_;
};

TEST_F(GgufTest, HeaderIsReadByteByByte) {
    LittleEndian bytes = start(2, 8);
    bytes.text("general.alignment").u32(kU32).u32(64);
    bytes.text("a.text").u32(kString).text("llama");
    bytes.text("a.negative").u32(kI8).u8(0xfe);
    bytes.text("a.large").u32(kU64).u64(std::uint64_t{1} << 40);
    bytes.text("a.single").u32(kF32).f32(1e-5f);
    bytes.text("a.double").u32(kF64).f64(0.1);
    bytes.text("a.flag").u32(kBool).u8(1);
    bytes.text("a.tokens").u32(kArray).u32(kString).u64(3).text("<s>").text("").text("b");
    describe(bytes, "matrix", {3, 2}, 0, 64);
    describe(bytes, "halves", {4}, 1, 0);
    bytes.pad_to(64);
    const auto data = static_cast<std::int64_t>(bytes.size());
    bytes.raw(std::string(64 + 24, '\0'));

    const GgufHeader header = read(bytes.bytes());
    EXPECT_EQ(std::get<std::string>(*header.find("a.text")), "llama");
    EXPECT_EQ(std::get<std::int64_t>(*header.find("a.negative")), -2);
    EXPECT_EQ(std::get<std::uint64_t>(*header.find("a.large")), std::uint64_t{1} << 40);
    EXPECT_EQ(std::get<double>(*header.find("a.single")), static_cast<double>(1e-5f));
    EXPECT_EQ(std::get<double>(*header.find("a.double")), 0.1);
    EXPECT_TRUE(std::get<bool>(*header.find("a.flag")));
    EXPECT_EQ(std::get<GgufList>(*header.find("a.tokens")).count, 3);
    EXPECT_EQ(header.find("a.absent"), nullptr);
    ASSERT_EQ(header.tensors.size(), 2u);
    EXPECT_EQ(header.tensors[0].name, "matrix");
    EXPECT_EQ(header.tensors[0].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(header.tensors[0].file_offset, data + 64);
    EXPECT_EQ(header.tensors[0].bytes(), 24);
    EXPECT_EQ(header.tensors[1].type, GgufType::kF16);
    EXPECT_EQ(header.tensors[1].file_offset, data);
}

TEST_F(GgufTest, OtherFilesAndVersions) {
    EXPECT_EQ(error(start(0, 0).bytes()), "no error");
    EXPECT_EQ(error(start(0, 0, 2).bytes()), "no error");
    EXPECT_TRUE(toy::contains(error("GGUF"), "too short"));
    EXPECT_TRUE(toy::contains(error("GGML" + std::string(20, '\0')), "does not begin with GGUF"));
    EXPECT_TRUE(toy::contains(error(start(0, 0, 1).bytes()), "is of GGUF version 1"));
    EXPECT_TRUE(toy::contains(error(start(0, 0, 4).bytes()), "is of GGUF version 4"));
    EXPECT_TRUE(toy::contains(error(start(0, 0, 3u << 24).bytes()), "is big-endian"));
}

TEST_F(GgufTest, HostileCountsAndLengths) {
    const std::uint64_t most = ~std::uint64_t{0};
    EXPECT_TRUE(
        toy::contains(error(start(most, 0).bytes()), "claims 18446744073709551615 tensors"));
    EXPECT_TRUE(toy::contains(error(start(0, most).bytes()), "at most"));
    EXPECT_TRUE(toy::contains(error(start(1, 0).bytes()), "inside of its header"));
    EXPECT_TRUE(toy::contains(error(start(0, 1).u64(most).bytes()), "a key at byte 24 claims"));
    EXPECT_TRUE(toy::contains(error(start(0, 1).text("k").u32(kString).u64(100).bytes()),
                              "k at byte 37 claims 100 bytes, at most 0"));
    EXPECT_TRUE(toy::contains(error(start(0, 1).text("k").u32(13).bytes()), "is of type 13"));
    EXPECT_TRUE(toy::contains(
        error(start(0, 1).text("k").u32(kArray).u32(kU64).u64(most / 8 + 2).u64(0).bytes()),
        "more than the file can hold"));
    EXPECT_TRUE(toy::contains(
        error(start(0, 1).text("k").u32(kArray).u32(kString).u64(1).u64(most).bytes()),
        "k: item 0 claims"));
    EXPECT_TRUE(
        toy::contains(error(start(0, 1).text("k").u32(kArray).u32(kArray).u64(1).u64(0).bytes()),
                      "is a list of type 9"));
    EXPECT_TRUE(toy::contains(
        error(start(0, 2).text("k").u32(kBool).u8(0).text("k").u32(kBool).u8(0).bytes()),
        "names key 'k' twice"));
    for (const std::uint32_t alignment : {0u, 4u, 33u, 1u << 31}) {
        EXPECT_TRUE(toy::contains(
            error(start(0, 1).text("general.alignment").u32(kU32).u32(alignment).bytes()),
            "must be a power of two"));
    }
}

TEST_F(GgufTest, HostileTensors) {
    const auto expect = [&](std::vector<std::uint64_t> extents, std::uint32_t type,
                            std::uint64_t offset, const std::string& part) {
        const auto found = error_of_tensor(
            [&](LittleEndian& bytes) { describe(bytes, "t", extents, type, offset); });
        EXPECT_TRUE(toy::contains(found, part));
    };
    expect({16}, 0, 0, "no error");
    expect({}, 0, 0, "has 0 dimensions");
    expect({1, 1, 1, 1, 1}, 0, 0, "has 5 dimensions");
    expect({0}, 0, 0, "shape [0] is not possible");
    expect({~std::uint64_t{0}}, 0, 0, "has an impossible shape");
    expect({std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 0, "is not possible");
    expect({32}, 13, 0, "is of ggml's type 13");
    expect({48}, 2, 0, "rows of 48 are no whole number of Q4_0 blocks");
    expect({128, 2}, 12, 0, "rows of 128 are no whole number of Q4_K blocks");
    expect({16}, 0, 8, "no multiple of 32");
    expect({16}, 0, 32, "lie outside of the file's 64");
    expect({17}, 0, 0, "lie outside of the file's 64");
    expect({16}, 0, ~std::uint64_t{0} - 31, "lies outside the file");
    expect({16}, 0, std::uint64_t{1} << 62, "lie outside");
    LittleEndian two = start(2, 0);
    describe(two, "a", {16}, 0, 0);
    describe(two, "b", {1}, 0, 32);
    EXPECT_TRUE(toy::contains(error(two.pad_to(32).raw(std::string(64, '\0')).bytes()),
                              "tensors 'a' and 'b' overlap"));
    LittleEndian twice = start(2, 0);
    describe(twice, "a", {1}, 0, 0);
    describe(twice, "a", {1}, 0, 32);
    EXPECT_TRUE(toy::contains(error(twice.pad_to(32).raw(std::string(64, '\0')).bytes()),
                              "names tensor 'a' twice"));
}

/// Every range of a tensor is what the whole one has there.
TEST_F(GgufTest, RangesCutBlocks) {
    LittleEndian bytes = start(2, 0);
    describe(bytes, "q", {64, 3}, 8, 0);
    describe(bytes, "h", {5}, 30, 224);
    bytes.pad_to(32);
    std::vector<float> expected;
    for (int block = 0; block < 6; ++block) {
        bytes.u16(0x3c00);  // 1.0
        for (int i = 0; i < 32; ++i) {
            const int quant = (block * 37 + i * 11) % 256 - 128;
            bytes.u8(static_cast<std::uint8_t>(quant));
            expected.push_back(static_cast<float>(quant));
        }
    }
    bytes.pad_to(32);
    for (const std::uint16_t half : {0x3f80, 0x4000, 0xc000, 0x0000, 0x3f00}) bytes.u16(half);
    toy::write_text(path(), bytes.bytes());

    GgufWeights weights(path());
    for (std::int64_t begin = 0; begin <= 192; begin += 7) {
        for (std::int64_t count = 0; count <= 192 - begin; count += 13) {
            std::vector<float> range(static_cast<std::size_t>(count));
            weights.read("q", begin, range);
            EXPECT_TRUE(std::ranges::equal(
                range, std::span(expected).subspan(static_cast<std::size_t>(begin), range.size())));
        }
    }
    std::vector<float> halves(3);
    weights.read("h", 1, halves);
    EXPECT_EQ(halves, (std::vector<float>{2.0f, -2.0f, 0.0f}));
    EXPECT_THROW(weights.read("h", 3, halves), DataError);
    EXPECT_THROW(weights.read("q", -1, halves), DataError);
    EXPECT_THROW(weights.read("x", 0, halves), DataError);
}

}  // namespace
}  // namespace fullshard::checkpoint
