#include "checkpoint/format/llmc_model.h"

#include "base/error.h"
#include "checkpoint/little_endian.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>

#include <array>

namespace fullshard::checkpoint {
namespace {

using toy::LittleEndian;

/// Fields of a header in their order; the rest of the 256 is zero.
std::string header(const std::vector<std::int64_t>& fields) {
    LittleEndian bytes;
    for (const std::int64_t field : fields) bytes.u32(static_cast<std::uint64_t>(field));
    bytes.raw(std::string(1024 - bytes.size(), '\0'));
    return bytes.bytes();
}

// Of 3 positions, 5 tokens padded to 8, 2 layers, 2 heads, width 4: elements by hand.
constexpr std::size_t kElements = 8 * 4 + 3 * 4 +                   // wte, wpe
                                  2 * (4 + 4 + 12 * 4 + 12) +       // ln1, qkv
                                  2 * (4 * 4 + 4 + 4 + 4) +         // attproj, ln2
                                  2 * (16 * 4 + 16 + 4 * 16 + 4) +  // fc, fcproj
                                  4 + 4;                            // lnf
const std::vector<std::int64_t> kFields = {20240326, 3, 3, 5, 2, 2, 4, 8};

class LlmcModelTest : public testing::Test {
  protected:
    std::string error(const std::string& bytes) const {
        toy::write_text(path(), bytes);
        return toy::error_of([&] { read_llmc_header(PosixFile::open(path())); });
    }
    /// The error of a file as long as `kFields` asks for with one field changed.
    std::string error_with(std::size_t field, std::int64_t value) const {
        auto fields = kFields;
        fields[field] = value;
        return error(header(fields) + std::string(kElements * 4, '\0'));
    }
    std::filesystem::path path() const { return folder_.path() / "model.bin"; }

    toy::TemporaryFolder folder_;
};

TEST_F(LlmcModelTest, HeaderIsReadAndWrittenByteByByte) {
    const std::string bytes = header(kFields) + std::string(kElements * 4, '\0');
    toy::write_text(path(), bytes);
    const LlmcModel model = read_llmc_header(PosixFile::open(path()));
    const LlmcModel expected{.max_positions = 3,
                             .vocab_size = 5,
                             .num_layers = 2,
                             .num_heads = 2,
                             .d_model = 4,
                             .padded_vocab_size = 8,
                             .dtype = DType::kFloat32};
    EXPECT_EQ(model, expected);
    const auto written = make_llmc_header(model);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(written.data()), written.size()),
              header(kFields));
    EXPECT_EQ(llmc_file_bytes(model), std::ssize(bytes));
}

// Published sizes of GPT-2 124M in both versions.
TEST_F(LlmcModelTest, SizesArePublishedOnes) {
    LlmcModel model{.max_positions = 1024,
                    .vocab_size = 50257,
                    .num_layers = 12,
                    .num_heads = 12,
                    .d_model = 768,
                    .padded_vocab_size = 50304,
                    .dtype = DType::kFloat32};
    EXPECT_EQ(llmc_file_bytes(model), 497904640);
    model.dtype = DType::kBFloat16;
    EXPECT_EQ(llmc_file_bytes(model), 248952832);
    model = {.max_positions = 1024,
             .vocab_size = 50257,
             .num_layers = 48,
             .num_heads = 25,
             .d_model = 1600,
             .padded_vocab_size = 50304,
             .dtype = DType::kFloat32};
    EXPECT_EQ(llmc_file_bytes(model), 6230746624);
}

TEST_F(LlmcModelTest, TensorsLieOneAfterAnotherLayerByLayer) {
    LittleEndian bytes;
    bytes.raw(header(kFields));
    for (std::size_t i = 0; i < kElements; ++i) bytes.f32(static_cast<float>(i));
    toy::write_text(path(), bytes.bytes());
    LlmcWeights weights(path());
    ASSERT_EQ(weights.tensors().size(), 4u + 2 * 12);
    const auto first = [&](std::string_view name) {
        std::vector<float> value(1);
        weights.read(name, 0, value);
        return value[0];
    };
    EXPECT_EQ(first("wte"), 0.0f);
    EXPECT_EQ(first("wpe"), 32.0f);  // behind the padding
    EXPECT_EQ(first("ln1w.0"), 44.0f);
    EXPECT_EQ(first("ln1w.1"), 48.0f);
    EXPECT_EQ(first("ln1b.0"), 52.0f);
    EXPECT_EQ(first("qkvw.0"), 60.0f);
    EXPECT_EQ(first("qkvw.1"), 108.0f);
    EXPECT_EQ(first("lnfb"), static_cast<float>(kElements - 4));
    EXPECT_EQ(weights.tensors()[0].shape, (std::vector<std::int64_t>{5, 4}));
    std::vector<float> padding(1);
    EXPECT_THROW(weights.read("wte", 20, padding), DataError);
    EXPECT_THROW(weights.read("qkvw.2", 0, padding), DataError);
}

TEST_F(LlmcModelTest, BFloat16) {
    auto fields = kFields;
    fields[1] = 5;
    LittleEndian bytes;
    bytes.raw(header(fields));
    for (std::size_t i = 0; i < kElements; ++i) bytes.u16(i == 33 ? 0xc040 : 0x3f80);
    toy::write_text(path(), bytes.bytes());
    LlmcWeights weights(path());
    std::vector<float> values(2);
    weights.read("wpe", 0, values);
    EXPECT_EQ(values, (std::vector<float>{1.0f, -3.0f}));
}

TEST_F(LlmcModelTest, HostileHeaders) {
    EXPECT_EQ(error_with(1, 3), "no error");
    EXPECT_TRUE(toy::contains(error("short"), "too short"));
    EXPECT_TRUE(toy::contains(error_with(0, 20240520), "magic number 20240520 is not"));
    EXPECT_TRUE(toy::contains(error_with(1, 4), "is of version 4, only 3 (fp32) and 5 (bf16)"));
    EXPECT_TRUE(toy::contains(error_with(1, 5), "its header asks for"));
    EXPECT_TRUE(toy::contains(error_with(2, 0), "max_seq_len = 0 at byte 8"));
    EXPECT_TRUE(toy::contains(error_with(4, -1), "num_layers = -1 at byte 16"));
    EXPECT_TRUE(toy::contains(error_with(6, 0x7fffffff), "channels = 2147483647 at byte 24"));
    EXPECT_TRUE(
        toy::contains(error_with(7, 4), "padded_vocab_size = 4 is less than vocab_size = 5"));
    EXPECT_TRUE(toy::contains(error_with(5, 3), "num_heads = 3 does not divide channels = 4"));
    const std::string good = header(kFields) + std::string(kElements * 4, '\0');
    EXPECT_TRUE(toy::contains(error(good + "x"), "its header asks for"));
    EXPECT_TRUE(toy::contains(error(good.substr(0, good.size() - 1)), "its header asks for"));
}

TEST_F(LlmcModelTest, OtherFilesOfLlmcAreNamed) {
    EXPECT_EQ(llmc_kind(20240520), "a file of tokens (GPT-2)");
    EXPECT_EQ(llmc_kind(20240328), "a tokenizer");
    EXPECT_EQ(llmc_kind(1), "");
    toy::write_text(path(), header({20240327, 2, 4, 64}));
    EXPECT_TRUE(toy::contains(toy::error_of([&] { open_weights(path()); }),
                              "is a debug state of llm.c, which holds no GPT-2 weights"));
}

}  // namespace
}  // namespace fullshard::checkpoint
