#include "data/token_table.h"

#include "data/file_case.h"

#include <string>

namespace fullshard::data {
namespace {

using namespace std::string_view_literals;
class TokenTableFile : public FileCase {};

TEST_F(TokenTableFile, BytesOfEachToken) {
    write("tokenizer.bin",
          llmc_header(20240328, 2, 4, 3) + std::string("\1a\2\xc3\xa4\0\3<|>", 10));
    const auto table = TokenTable::open(folder_);
    ASSERT_EQ(table.vocab_size(), 4);
    EXPECT_EQ(table.bytes_of(0), "a");
    EXPECT_EQ(table.bytes_of(1), "\xc3\xa4");
    EXPECT_EQ(table.bytes_of(2), "");
    EXPECT_EQ(table.bytes_of(3), "<|>");
    EXPECT_EQ(table.bytes_of(4), "") << "a padded table has more rows";
    EXPECT_EQ(table.bytes_of(-1), "");
    EXPECT_EQ(table.end_of_text(), 3);
}

TEST_F(TokenTableFile, EndOfTextByVersion) {
    const auto of = [&](std::int64_t version, std::int64_t tokens, std::int64_t end) {
        std::string body;
        for (std::int64_t i = 0; i < tokens; ++i) body += "\1x"sv;
        return TokenTable::read(write("t", llmc_header(20240328, version, tokens, end) + body))
            .end_of_text();
    };
    EXPECT_EQ(of(1, 50257, 0), 50256) << "GPT-2's: the field is unused";
    EXPECT_EQ(of(1, 10, 3), std::nullopt);
    EXPECT_EQ(of(2, 10, 3), 3);
    EXPECT_EQ(of(2, 10, 0xFFFFFFFF), std::nullopt);
    EXPECT_THROW(of(2, 10, 10), DataError);
    EXPECT_THROW(of(2, 10, 0xFFFFFFFE), DataError);
}

TEST_F(TokenTableFile, WithoutFolderTokensAreBytes) {
    const auto table = TokenTable::open("");
    ASSERT_EQ(table.vocab_size(), 256);
    EXPECT_EQ(table.bytes_of(0), "\0"sv);
    EXPECT_EQ(table.bytes_of('z'), "z");
    EXPECT_EQ(table.bytes_of(255), "\xff");
    EXPECT_EQ(table.end_of_text(), std::nullopt);
}

TEST_F(TokenTableFile, DamageIsNamedWithFileAndByte) {
    const auto refused = [&](const std::string& bytes, const std::vector<std::string>& parts) {
        const auto path = write("t", bytes);
        expect_data_error([&] { TokenTable::read(path); }, parts);
    };
    const auto good = llmc_header(20240328, 2, 2, 1) + std::string("\1a\2bc", 5);
    EXPECT_NO_THROW(TokenTable::read(write("good", good)));
    refused(good.substr(0, 1000), {"byte 0", "tokenizer of llm.c of 1000 bytes"});
    refused(llmc_header(20240520, 1, 0), {"byte 0", "a token file of llm.c"});
    refused(llmc_header(20240328, 3, 2) + "\1a\1b", {"byte 4", "version 3"});
    refused(llmc_header(20240328, 2, 0), {"byte 8", "0 tokens"});
    refused(llmc_header(20240328, 2, 0x7fffffff), {"byte 8", "2147483647 tokens"});
    refused(llmc_header(20240328, 2, -5), {"byte 8", "-5 tokens"});
    refused(good.substr(0, good.size() - 1), {"byte 1026", "cut off in token 1 of 2"});
    refused(good.substr(0, good.size() - 4), {"byte 8", "2 tokens"});
    refused(good + "x", {"byte 1029", "1 bytes follow"});
    expect_data_error([&] { TokenTable::open(folder_ / "none"); }, {"tokenizer.bin"});
}

}  // namespace
}  // namespace fullshard::data
