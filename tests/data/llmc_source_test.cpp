#include "data/file_case.h"
#include "data/token_files.h"
#include "data/toy_source.h"

#include <vector>

namespace fullshard::data {
namespace {

using Tokens = std::vector<std::int64_t>;
class LlmcSource : public FileCase {};

TEST_F(LlmcSource, BothWidthsAreRead) {
    const auto narrow = open_llmc(write("a.bin", llmc_tokens16({1, 65535, 0, 258})), 65536);
    EXPECT_EQ(all_tokens(*narrow), (Tokens{1, 65535, 0, 258}));
    EXPECT_EQ(narrow->vocab_size(), 65536);
    EXPECT_TRUE(narrow->documents().empty());
    EXPECT_FALSE(narrow->has_loss_mask());
    const auto wide = open_llmc(write("b.bin", llmc_tokens32({1, 128255, 65536})), 128256);
    EXPECT_EQ(all_tokens(*wide), (Tokens{1, 128255, 65536}));
}

TEST_F(LlmcSource, HeaderByteByByte) {
    // 20240520 = 0x0134d888, 20240801 = 0x0134d9a1.
    std::string file("\x88\xd8\x34\x01\x01\0\0\0\x02\0\0\0", 12);
    file.resize(1024);
    file += std::string("\x34\x12\x78\x06", 4);
    EXPECT_EQ(all_tokens(*open_llmc(write("a.bin", file), 65536)), (Tokens{0x1234, 0x678}));
    std::string wide("\xa1\xd9\x34\x01\x07\0\0\0\x01\0\0\0", 12);
    wide.resize(1024);
    wide += std::string("\x34\x12\x01\0", 4);
    EXPECT_EQ(all_tokens(*open_llmc(write("b.bin", wide), 1 << 20)), (Tokens{0x11234}));
}

TEST_F(LlmcSource, FilesOfAFolderOrPatternAreJoinedInTheOrderOfTheirNames) {
    write("train_000002.bin", llmc_tokens16({5, 6}));
    write("train_000001.bin", llmc_tokens16({1, 2, 3}));
    write("train_000003.bin", llmc_tokens32({7}));
    write("train_000000.bin", llmc_tokens16({}));
    write("val_000000.bin", llmc_tokens16({9}));
    write("notes.txt", "no tokens");
    EXPECT_EQ(all_tokens(*open_llmc(folder_, 10)), (Tokens{1, 2, 3, 5, 6, 7, 9}));
    const auto train = open_llmc(folder_ / "train_*.bin", 10);
    EXPECT_EQ(all_tokens(*train), (Tokens{1, 2, 3, 5, 6, 7}));
    EXPECT_EQ(train->file_starts(), (Tokens{0, 3, 5}));
    EXPECT_EQ(train->locate(4), (folder_ / "train_000002.bin").string() + ", byte 1026");
    EXPECT_EQ(train->locate(5), (folder_ / "train_000003.bin").string() + ", byte 1024");
    Tokens part(4);
    train->read(2, part);
    EXPECT_EQ(part, (Tokens{3, 5, 6, 7}));
    EXPECT_THROW(train->read(3, part), LogicError);
}

TEST_F(LlmcSource, ATokenOutsideTheVocabularyIsFoundWhereItIsRead) {
    write("a.bin", llmc_tokens16({1, 2, 3}));
    write("b.bin", llmc_tokens16({4, 500, 6}));
    const auto source = open_llmc(folder_, 500);
    Tokens out(4);
    source->read(0, out);
    expect_data_error(
        [&] { source->read(1, out); },
        {"token 500", (folder_ / "b.bin").string() + ", byte 1026", "model.vocab_size = 500"});
}

TEST_F(LlmcSource, PathsWithoutFiles) {
    expect_data_error([&] { open_llmc(folder_, 10); }, {folder_.string(), "*.bin"});
    expect_data_error([&] { open_llmc(folder_ / "x*.bin", 10); }, {"x*.bin", "no file matches"});
    expect_data_error([&] { open_llmc(folder_ / "x.bin", 10); }, {"x.bin"});
    expect_data_error([&] { open_llmc(write("e.bin", llmc_tokens16({})), 10); }, {"no tokens"});
    write("folder.bin", "");
    expect_data_error([&] { open_llmc(folder_ / "missing" / "*.bin", 10); }, {"cannot list"});
}

TEST_F(LlmcSource, OtherKindsOfFilesAreNamed) {
    const auto opened = [&](std::string_view bytes) {
        const auto path = write("x.bin", bytes);
        return data_error([&] { open_llmc(path, 100); });
    };
    const auto expect = [&](const std::string& bytes, const char* kind) {
        const auto message = opened(bytes);
        EXPECT_NE(message.find(kind), std::string::npos) << message;
        EXPECT_NE(message.find("x.bin"), std::string::npos) << message;
    };
    expect(llmc_header(20240326, 3, 1024), "GPT-2 model of llm.c");
    expect(llmc_header(20240803, 3, 1024), "Llama-3 model of llm.c");
    expect(llmc_header(20240327, 2, 4), "debug state of llm.c");
    expect(llmc_header(20240328, 2, 4), "tokenizer of llm.c");
    expect(llmc_header(20240522, 1, 4), "evaluation set of llm.c");
    expect(llmc_header(20240527, 1, 4), "optimizer state of llm.c");
    expect(megatron_index(8, 2, {4}, {0, 1}), "index of Megatron");
    expect("\x89HDF\r\n\x1a\n", "HDF5");
    expect("GGUF" + std::string(2000, '\0'), "GGUF");
    expect("\x1f\x8b rest", "gzip");
    expect(std::string(2000, 'x'), "unknown kind");
    expect("", "0 bytes");
}

}  // namespace
}  // namespace fullshard::data
