// Files that a test writes byte by byte, by the formats' descriptions and not by our constants.
#pragma once

#include "base/error.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::data {

/// A fresh folder for each test, below `parent`.
class FileCase : public testing::Test {
  protected:
    explicit FileCase(const std::filesystem::path& parent = testing::TempDir())
        : folder_(parent /
                  (std::string("fullshard_") + test_.test_suite_name() + "_" + test_.name())) {}

    void SetUp() override {
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    std::filesystem::path write(const std::filesystem::path& name, std::string_view bytes) const {
        const auto path = folder_ / name;
        std::ofstream(path, std::ios::binary) << bytes;
        return path;
    }

    const testing::TestInfo& test_ = *testing::UnitTest::GetInstance()->current_test_info();
    const std::filesystem::path folder_;
};

/// `value` as `bytes` little-endian bytes.
inline std::string little_endian(std::int64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i)
        text.push_back(static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xff));
    return text;
}

inline std::string little_endian(const std::vector<std::int64_t>& values, int bytes) {
    std::string text;
    for (const std::int64_t value : values) text += little_endian(value, bytes);
    return text;
}

/// A header of llm.c: 256 little-endian 32-bit integers.
inline std::string llmc_header(std::int64_t magic, std::int64_t version, std::int64_t third,
                               std::int64_t fourth = 0) {
    std::string header = little_endian({magic, version, third, fourth}, 4);
    header.resize(1024);
    return header;
}

/// A token file of llm.c with 16-bit tokens, as data/llama and dev/data of llm.c write them.
inline std::string llmc_tokens16(const std::vector<std::int64_t>& tokens) {
    return llmc_header(20240520, 1, std::ssize(tokens)) + little_endian(tokens, 2);
}
inline std::string llmc_tokens32(const std::vector<std::int64_t>& tokens) {
    return llmc_header(20240801, 7, std::ssize(tokens)) + little_endian(tokens, 4);
}

/// An index of Megatron-LM of sequences that lie one after the other.
inline std::string megatron_index(int type_code, int width,
                                  const std::vector<std::int64_t>& sequence_sizes,
                                  const std::vector<std::int64_t>& documents) {
    std::vector<std::int64_t> pointers;
    std::int64_t byte = 0;
    for (const std::int64_t size : sequence_sizes) {
        pointers.push_back(byte);
        byte += size * width;
    }
    return std::string("MMIDIDX\0\0", 9) + little_endian(1, 8) + little_endian(type_code, 1) +
           little_endian(std::ssize(sequence_sizes), 8) + little_endian(std::ssize(documents), 8) +
           little_endian(sequence_sizes, 4) + little_endian(pointers, 8) +
           little_endian(documents, 8);
}

/// The message of the DataError that `call` throws.
template <typename Call>
std::string data_error(Call call) {
    try {
        call();
    } catch (const DataError& error) {
        EXPECT_EQ(error.exit_code(), ExitCode::kData);
        return error.what();
    }
    ADD_FAILURE() << "no DataError";
    return {};
}

/// Expects a DataError with all of `parts` in its message.
template <typename Call>
void expect_data_error(Call call, const std::vector<std::string>& parts) {
    const std::string message = data_error(call);
    for (const std::string& part : parts)
        EXPECT_NE(message.find(part), std::string::npos) << part << " not in: " << message;
}

}  // namespace fullshard::data
