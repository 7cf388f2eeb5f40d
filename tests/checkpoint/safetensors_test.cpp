#include "checkpoint/format/safetensors.h"

#include "base/error.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

#include <bit>

namespace fullshard::checkpoint {
namespace {

/// Header and data as a file has them.
std::string file_text(const std::string& header, std::size_t data_bytes) {
    std::string text(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
    return text + header + std::string(data_bytes, 'x');
}

class SafetensorsTest : public testing::Test {
  protected:
    std::vector<SafetensorsEntry> read(const std::string& text) const {
        const auto path = folder_.path() / "model.safetensors";
        toy::write_text(path, text);
        return read_safetensors_header(PosixFile::open(path));
    }
    std::string error(const std::string& header, std::size_t data_bytes) const {
        return toy::error_of([&] { read(file_text(header, data_bytes)); });
    }

    toy::TemporaryFolder folder_;
};

// What the reference library writes: save_file(tensors, path, metadata={"format": "pt"}).
TEST_F(SafetensorsTest, HeaderIsTheReferenceWriters) {
    std::vector<SafetensorsEntry> entries = {{"B", {1}, 0}, {"a", {}, 0}, {"b", {2, 3}, 0}};
    const std::string header = make_safetensors_header(entries);
    const std::string json = R"({"__metadata__":{"format":"pt"},)"
                             R"("B":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
                             R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}})";
    EXPECT_EQ(header.substr(8, json.size()), json);
    EXPECT_EQ(header.size() % 8, 0u);
    EXPECT_LT(header.size() - 8 - json.size(), 8u);
    EXPECT_EQ(header.find_first_not_of(' ', 8 + json.size()), header.npos);
    EXPECT_EQ(header, file_text(header.substr(8), 0));
    const auto data = static_cast<std::int64_t>(header.size());
    EXPECT_EQ(entries, (std::vector<SafetensorsEntry>{
                           {"B", {1}, data}, {"a", {}, data + 4}, {"b", {2, 3}, data + 8}}));
    EXPECT_EQ(read(header + std::string(32, 'x')), entries);
}

TEST_F(SafetensorsTest, NameOfTheMetadataIsRefused) {
    std::vector<SafetensorsEntry> entries = {{"__metadata__", {1}, 0}};
    EXPECT_THROW(make_safetensors_header(entries), UsageError);
}

TEST_F(SafetensorsTest, EntriesMayComeInAnyOrder) {
    const auto entries = read(file_text(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
                                        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} )",
                                        12));
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].name, "b");
    EXPECT_EQ(entries[1].file_offset, entries[0].file_offset + 8);
}

TEST_F(SafetensorsTest, HostileLengths) {
    const std::string good =
        file_text(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4);
    EXPECT_EQ(toy::error_of([&] { read(good); }), "no error");
    for (std::size_t size = 0; size < good.size(); ++size) {
        EXPECT_THROW(read(good.substr(0, size)), DataError) << size;
    }
    EXPECT_THROW(read(good + "x"), DataError);
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, good.size() - 7,
                                       std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
        std::string text = good;
        const auto bytes = std::bit_cast<std::array<char, 8>>(length);
        std::ranges::copy(bytes, text.begin());
        EXPECT_THROW(read(text), DataError) << length;
    }
}

TEST_F(SafetensorsTest, HostileJson) {
    EXPECT_TRUE(toy::contains(error("[]", 0), "does not begin with '{'"));
    EXPECT_TRUE(toy::contains(error(R"({"a":)", 0), "is no JSON"));
    EXPECT_TRUE(toy::contains(error("{} {}", 0), "is no JSON"));
    EXPECT_TRUE(toy::contains(error("{\"\xff\":1}", 0), "is no JSON"));
    EXPECT_TRUE(toy::contains(error("{" + std::string(100000, '['), 0), "is no JSON"));
    EXPECT_TRUE(toy::contains(error(R"({"a":1})", 0), "tensor 'a': must be an object"));
    EXPECT_TRUE(toy::contains(error(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                    R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                                    8),
                              "names 'a' twice"));
    EXPECT_TRUE(toy::contains(
        error(R"({"a":{"dtype":"F32","dtype":"I8","shape":[],"data_offsets":[0,4]}})", 4),
        "names 'dtype' twice"));
}

/// A header with one tensor "a" of these fields.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}}";
}

TEST_F(SafetensorsTest, HostileTensors) {
    const auto expect = [&](const std::string& header, std::size_t bytes, const std::string& part) {
        EXPECT_TRUE(toy::contains(error(header, bytes), part)) << header;
    };
    expect(one(R"("X32")", "[1]", "[0,4]"), 4, "is of type \"X32\", which is not known");
    expect(one(R"("I64")", "[1]", "[0,4]"), 4, "do not span the 8 bytes of its shape");
    expect(one(R"("I64")", "[2305843009213693951]", "[0,0]"), 0, "is not possible");
    expect(one(R"("BF16")", "[2]", "[0,8]"), 8, "do not span the 4 bytes of its shape");
    expect(one("1", "[2]", "[0,4]"), 4, "dtype must be a text");
    expect(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "dtype must be a text");
    expect(one(R"("F32")", "1", "[0,4]"), 4, "shape must be a list");
    expect(one(R"("F32")", "[-1]", "[0,4]"), 4, "shape must hold whole numbers");
    expect(one(R"("F32")", "[1.0]", "[0,4]"), 4, "shape must hold whole numbers");
    expect(one(R"("F32")", "[18446744073709551615]", "[0,4]"), 4, "shape must hold whole numbers");
    expect(one(R"("F32")", "[0]", "[0,0]"), 0, "shape [0] is not possible");
    expect(one(R"("F32")", "[4294967296,4294967296,4]", "[0,4]"), 4, "is not possible");
    expect(one(R"("F32")", "[4611686018427387905]", "[0,4]"), 4, "is not possible");
    expect(one(R"("F32")", "[1]", "[0,8]"), 8, "do not span the 4 bytes of its shape");
    expect(one(R"("F32")", "[1]", "[4,0]"), 4, "do not span the 4 bytes of its shape");
    expect(one(R"("F32")", "[1]", "[0]"), 4, "do not span the 4 bytes of its shape");
    expect(one(R"("F32")", "[1]", "[4,8]"), 8, "begins at byte 4, 0 was expected");
    expect(one(R"("F32")", "[1]", "[0,4]"), 8, "its tensors end at byte 4, the file holds 8");
    expect(one(R"("F32")", "[2]", "[0,8]"), 4, "its tensors end at byte 8, the file holds 4");
    expect(one(R"("F32")", "[1]", "[9223372036854775803,9223372036854775807]"), 4,
           "begins at byte 9223372036854775803, 0 was expected");
    const std::string two = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                            R"("b":{"dtype":"F32","shape":[1],"data_offsets":)";
    expect(two + "[4,8]}}", 8, "tensor 'b' begins at byte 4, 8 was expected");
    expect(two + "[12,16]}}", 16, "tensor 'b' begins at byte 12, 8 was expected");
}

}  // namespace
}  // namespace fullshard::checkpoint
