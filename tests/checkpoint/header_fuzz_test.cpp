// Headers are hostile input: whatever is in them, a reader refuses the file with a DataError or
// reads it, and asks for no memory that the file could not be worth: the binary is linked with
// support/allocation_limit.cpp.
#include "base/error.h"
#include "checkpoint/exchange/architecture.h"
#include "checkpoint/exchange/model_weights.h"
#include "checkpoint/foreign_files.h"
#include "checkpoint/format/weights.h"
#include "checkpoint/little_endian.h"
#include "checkpoint/toy_checkpoint.h"
#include "spec/architecture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <random>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kMutations = 10'000;

/// Changes of a file's first bytes that parsers trip over.
class Mutator {
  public:
    Mutator(std::string original, std::size_t header_bytes)
        : original_(std::move(original)), header_bytes_(header_bytes) {}

    std::string next() {
        std::string text = original_;
        for (auto changes = 1 + random_() % 3; changes > 0; --changes) change(text);
        return text;
    }

  private:
    std::size_t place(const std::string& text) {
        return random_() % std::max<std::size_t>(1, std::min(header_bytes_, text.size()));
    }
    void change(std::string& text) {
        static constexpr std::array<std::uint64_t, 14> kNumbers = {0,
                                                                   1,
                                                                   2,
                                                                   7,
                                                                   0x7f,
                                                                   0xff,
                                                                   0x7fff,
                                                                   0xffff,
                                                                   0x7fffffff,
                                                                   0xffffffff,
                                                                   std::uint64_t{1} << 32,
                                                                   std::uint64_t{1} << 62,
                                                                   ~std::uint64_t{0} >> 1,
                                                                   ~std::uint64_t{0}};
        static constexpr std::string_view kSigns = "{}[]\",:0-9.eE\\ntf";
        const std::size_t at = place(text);
        switch (random_() % 6) {
            case 0:
                if (!text.empty()) text[at] = static_cast<char>(text[at] ^ 1 << random_() % 8);
                break;
            case 1: {
                const std::uint64_t number = kNumbers[random_() % kNumbers.size()];
                const std::size_t width = std::size_t{1} << random_() % 4;
                for (std::size_t i = 0; i < width && at + i < text.size(); ++i) {
                    text[at + i] = static_cast<char>(number >> 8 * i & 0xff);
                }
                break;
            }
            case 2:
                text.resize(at);
                break;
            case 3:
                text.erase(at, 1 + random_() % 8);
                break;
            case 4:
                text.insert(at, text.substr(place(text), 1 + random_() % 32));
                break;
            default:
                if (!text.empty()) text[at] = kSigns[random_() % kSigns.size()];
        }
    }

    std::string original_;
    std::size_t header_bytes_;
    std::mt19937_64 random_{20241130};
};

class HeaderFuzzTest : public testing::Test {
  protected:
    /// How many of the mutated files were read; those that were not threw a DataError.
    int count_read(const std::string& original, std::size_t header_bytes,
                   const std::function<void(const fs::path&)>& use) const {
        const fs::path path = folder_.path() / file_name_;
        Mutator mutator(original, header_bytes);
        int read = 0;
        for (int i = 0; i < kMutations; ++i) {
            const std::string text = mutator.next();
            fs::remove(path);  // some file systems flush a file that is written over
            std::ofstream(path, std::ios::binary) << text;
            try {
                use(path);
                ++read;
            } catch (const DataError&) {
            }
        }
        return read;
    }

    /// Whatever a header says is there must be readable.
    static void read_everything(WeightsSource& weights) {
        for (const auto& tensor : weights.tensors()) {
            if (!tensor.unread_type.empty()) continue;
            std::size_t numel = 1;
            for (const std::int64_t extent : tensor.shape)
                numel *= static_cast<std::size_t>(extent);
            std::vector<float> values(numel);
            weights.read(tensor.name, 0, values);
        }
    }
    static void use_weights(const fs::path& path) {
        read_everything(*open_weights(path));
        if (const auto architecture = architecture_of(path)) {
            read_everything(*open_model_weights(path, *architecture));
        }
    }

    std::string bytes_of(const fs::path& path) const {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    toy::TemporaryFolder folder_;
    std::string file_name_ = "model.bin";
};

TEST_F(HeaderFuzzTest, Gguf) {
    const fs::path path = folder_.path() / "original";
    const toy::GgufPairs pairs = toy::metadata_of(toy::small_llama());
    const auto tensors = toy::of_llama_cpp(toy::small_llama());
    toy::write_gguf(path, tensors, pairs.bytes, pairs.count);
    const std::string original = bytes_of(path);
    std::size_t data = 0;
    for (const auto& tensor : tensors) data += tensor.values.size() * 4;
    const int read = count_read(original, original.size() - data, use_weights);
    EXPECT_GT(read, 50);  // a changed character of a name or a number does no harm
    EXPECT_LT(read, kMutations * 3 / 4);
}

TEST_F(HeaderFuzzTest, QuantisedGguf) {
    toy::LittleEndian bytes;
    bytes.raw("GGUF").u32(3).u64(5).u64(1).text("general.alignment").u32(4).u32(32);
    std::uint64_t offset = 0;
    for (const auto& [type, block] :
         {std::pair{2u, 18u}, {3u, 20u}, {8u, 34u}, {12u, 144u}, {14u, 210u}}) {
        bytes.text(std::string("t") + std::to_string(type))
            .u32(2)
            .u64(256)
            .u64(2)
            .u32(type)
            .u64(offset);
        offset += (2 * block * (type < 12 ? 8 : 1) + 31) / 32 * 32;
    }
    bytes.pad_to(32);
    const std::size_t header = bytes.size();
    bytes.raw(std::string(offset, '\x35'));
    const int read = count_read(bytes.bytes(), header, use_weights);
    EXPECT_GT(read, 50);
    EXPECT_LT(read, kMutations * 3 / 4);
}

TEST_F(HeaderFuzzTest, LlmcModel) {
    const int read = count_read(toy::llmc_bytes(toy::small_gpt2()), 32, use_weights);
    EXPECT_GT(read, 5);
    EXPECT_LT(read, kMutations * 3 / 4);
}

TEST_F(HeaderFuzzTest, Safetensors) {
    file_name_ = "model.safetensors";
    const fs::path path = folder_.path() / "original";
    const auto tensors = toy::of_transformers(toy::small_gpt2());
    toy::write_safetensors(path, tensors);
    toy::write_text(folder_.path() / "config.json", spec::to_hf_config(toy::small_gpt2()));
    const std::string original = bytes_of(path);
    std::size_t data = 0;
    for (const auto& tensor : tensors) data += tensor.values.size() * 4;
    const int read = count_read(original, original.size() - data,
                                [](const fs::path& file) { read_everything(*open_weights(file)); });
    EXPECT_GT(read, 50);
    EXPECT_LT(read, kMutations * 3 / 4);
}

TEST_F(HeaderFuzzTest, ConfigJson) {
    spec::Llama llama = toy::small_llama();
    llama.rope = {.scaling = spec::Rope::Scaling::kYarn, .factor = 4.0, .original_positions = 8};
    for (const spec::Architecture& model :
         {spec::Architecture(toy::small_gpt2()), spec::Architecture(llama)}) {
        const std::string original = spec::to_hf_config(model);
        Mutator mutator(original, original.size());
        int read = 0;
        for (int i = 0; i < kMutations; ++i) {
            const std::string text = mutator.next();
            try {
                const auto found = spec::parse_hf_config(text, "config.json");
                // What is accepted has sizes that a description can be made of.
                EXPECT_GT(describe(found).numel(), 0);
                ++read;
            } catch (const DataError&) {
            }
        }
        EXPECT_GT(read, 50);
        EXPECT_LT(read, kMutations * 3 / 4);
    }
}

}  // namespace
}  // namespace fullshard::checkpoint
