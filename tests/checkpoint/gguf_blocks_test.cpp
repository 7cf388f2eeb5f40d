#include "checkpoint/format/gguf_blocks.h"

#include "base/error.h"
#include "base/files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace fullshard::checkpoint {
namespace {

constexpr std::uint16_t kHalf = 0x3800;      // 0.5
constexpr std::uint16_t kMinusTwo = 0xc000;  // -2.0

/// A block put together from the numbers that it packs.
class Packer {
  public:
    Packer& half(std::uint16_t bits) {
        bytes_.push_back(static_cast<std::uint8_t>(bits & 0xff));
        bytes_.push_back(static_cast<std::uint8_t>(bits >> 8));
        return *this;
    }
    Packer& bytes(const std::vector<std::uint8_t>& more) {
        bytes_.insert(bytes_.end(), more.begin(), more.end());
        return *this;
    }
    std::vector<float> dequantised(GgufType type) const {
        EXPECT_EQ(std::ssize(bytes_), block_of(type).bytes);
        std::vector<float> out(static_cast<std::size_t>(block_of(type).elements));
        dequantise(type, reinterpret_cast<const std::byte*>(bytes_.data()), out);
        return out;
    }

  private:
    std::vector<std::uint8_t> bytes_;
};

std::vector<int> random_numbers(std::size_t count, int most) {
    std::mt19937 generator(static_cast<unsigned>(count) + static_cast<unsigned>(most));
    std::vector<int> numbers(count);
    for (int& number : numbers)
        number = static_cast<int>(generator() % (static_cast<unsigned>(most) + 1));
    return numbers;
}

/// Quants of four bits, elements i and i + 16 in byte i.
std::vector<std::uint8_t> packed_32(const std::vector<int>& quants) {
    std::vector<std::uint8_t> bytes(16);
    for (std::size_t i = 0; i < 16; ++i) {
        bytes[i] = static_cast<std::uint8_t>(quants[i] | quants[i + 16] << 4);
    }
    return bytes;
}

TEST(GgufBlocksTest, Q4_0) {
    const auto quants = random_numbers(32, 15);
    const auto values = Packer().half(kHalf).bytes(packed_32(quants)).dequantised(GgufType::kQ4_0);
    for (std::size_t i = 0; i < 32; ++i) {
        EXPECT_EQ(values[i], 0.5f * static_cast<float>(quants[i] - 8));
    }
}

TEST(GgufBlocksTest, Q4_1) {
    const auto quants = random_numbers(32, 15);
    const auto values =
        Packer().half(kHalf).half(kMinusTwo).bytes(packed_32(quants)).dequantised(GgufType::kQ4_1);
    for (std::size_t i = 0; i < 32; ++i) {
        EXPECT_EQ(values[i], 0.5f * static_cast<float>(quants[i]) - 2.0f);
    }
}

TEST(GgufBlocksTest, Q8_0) {
    std::vector<std::uint8_t> quants;
    for (int i = 0; i < 32; ++i) quants.push_back(static_cast<std::uint8_t>(i * 8 - 128));
    const auto values = Packer().half(kMinusTwo).bytes(quants).dequantised(GgufType::kQ8_0);
    for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(values[static_cast<std::size_t>(i)], -2.0f * static_cast<float>(i * 8 - 128));
    }
}

TEST(GgufBlocksTest, Q4_K) {
    const auto quants = random_numbers(256, 15);
    const auto scales = random_numbers(8, 63);
    const auto minima = random_numbers(9, 63);
    std::vector<std::uint8_t> packed(12);
    for (std::size_t sub = 0; sub < 4; ++sub) {
        // The first four have six bits in a byte, whose upper two belong to the last four.
        packed[sub] = static_cast<std::uint8_t>(scales[sub] | scales[sub + 4] >> 4 << 6);
        packed[sub + 4] = static_cast<std::uint8_t>(minima[sub] | minima[sub + 4] >> 4 << 6);
        packed[sub + 8] =
            static_cast<std::uint8_t>((scales[sub + 4] & 15) | (minima[sub + 4] & 15) << 4);
    }
    std::vector<std::uint8_t> nibbles(128);
    for (std::size_t i = 0; i < 256; ++i) {
        const std::size_t at = i / 64 * 32 + i % 32;
        nibbles[at] = static_cast<std::uint8_t>(nibbles[at] | quants[i] << (i % 64 < 32 ? 0 : 4));
    }
    const auto values =
        Packer().half(kHalf).half(kMinusTwo).bytes(packed).bytes(nibbles).dequantised(
            GgufType::kQ4_K);
    for (std::size_t i = 0; i < 256; ++i) {
        EXPECT_EQ(values[i], 0.5f * static_cast<float>(scales[i / 32] * quants[i]) +
                                 2.0f * static_cast<float>(minima[i / 32]))
            << i;
    }
}

TEST(GgufBlocksTest, Q6_K) {
    const auto quants = random_numbers(256, 63);
    std::vector<std::uint8_t> lower(128), upper(64), scales(16);
    for (std::size_t i = 0; i < 256; ++i) {
        const std::size_t half = i / 128, group = i % 128 / 32, within = i % 32;
        auto& four = lower[half * 64 + group % 2 * 32 + within];
        four = static_cast<std::uint8_t>(four | (quants[i] & 15) << (group < 2 ? 0 : 4));
        auto& two = upper[half * 32 + within];
        two = static_cast<std::uint8_t>(two | quants[i] >> 4 << 2 * group);
    }
    for (int i = 0; i < 16; ++i)
        scales[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i * 15 - 120);
    const auto values =
        Packer().bytes(lower).bytes(upper).bytes(scales).half(kHalf).dequantised(GgufType::kQ6_K);
    for (std::size_t i = 0; i < 256; ++i) {
        EXPECT_EQ(values[i], 0.5f * static_cast<float>((static_cast<int>(i / 16) * 15 - 120) *
                                                       (quants[i] - 32)))
            << i;
    }
}

TEST(GgufBlocksTest, OnlyTheTypesOfTheTable) {
    EXPECT_EQ(find_gguf_block(13), nullptr);
    EXPECT_EQ(find_gguf_block(~0u), nullptr);
    std::vector<float> one(1);
    const std::byte byte{};
    EXPECT_THROW(dequantise(GgufType::kF32, &byte, one), LogicError);
    EXPECT_THROW(dequantise(GgufType::kQ4_0, &byte, one), LogicError);
}

template <typename T>
std::vector<T> from_hex(const std::string& text) {
    std::vector<T> values(text.size() / 2 / sizeof(T));
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    }
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

/// What the package `gguf` makes of the same blocks, bit by bit (tests/golden/make_gguf.py).
TEST(GgufBlocksTest, EqualThoseOfThePackage) {
    const auto golden = nlohmann::json::parse(read_file(FULLSHARD_GOLDEN_DIR "/gguf/gguf.json"));
    for (const GgufType type :
         {GgufType::kQ8_0, GgufType::kQ4_0, GgufType::kQ4_1, GgufType::kQ4_K, GgufType::kQ6_K}) {
        const GgufBlock& block = block_of(type);
        const auto& entry = golden.at(std::string(block.name));
        const auto bytes = from_hex<std::byte>(entry.at("bytes").get<std::string>());
        const auto expected = from_hex<float>(entry.at("values").get<std::string>());
        const auto blocks = bytes.size() / static_cast<std::size_t>(block.bytes);
        ASSERT_GT(blocks, 0u);
        std::vector<float> values(blocks * static_cast<std::size_t>(block.elements));
        ASSERT_EQ(values.size(), expected.size());
        for (std::size_t i = 0; i < blocks; ++i) {
            dequantise(type, bytes.data() + i * static_cast<std::size_t>(block.bytes),
                       std::span(values).subspan(i * static_cast<std::size_t>(block.elements),
                                                 static_cast<std::size_t>(block.elements)));
        }
        EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size() * 4), 0) << block.name;
    }
}

}  // namespace
}  // namespace fullshard::checkpoint
