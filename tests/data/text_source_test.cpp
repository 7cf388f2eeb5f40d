#include "data/text_source.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::data {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

/// A fresh folder for each test.
class LoadText : public testing::Test {
  protected:
    void SetUp() override {
        fs::remove_all(folder_);
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }

    fs::path write(const fs::path& relative, std::string_view content) const {
        const fs::path path = folder_ / relative;
        fs::create_directories(path.parent_path());
        std::ofstream(path, std::ios::binary) << content;
        return path;
    }

    const fs::path folder_ = fs::path(testing::TempDir()) /
                             (std::string("fullshard_text_") +
                              testing::UnitTest::GetInstance()->current_test_info()->name());
};

std::string text_of(const TokenSource& source) {
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(source.size()));
    source.read(0, tokens);
    return {tokens.begin(), tokens.end()};
}

/// The message of the DataError that `call` throws.
template <typename Call>
std::string data_error(Call call) {
    try {
        call();
    } catch (const DataError& error) {
        return error.what();
    }
    ADD_FAILURE() << "no DataError";
    return {};
}

TEST_F(LoadText, AFileIsItsBytes) {
    const auto path = write("a", "\x00z\xff\n"sv);
    const auto source = load_text(path);
    EXPECT_EQ(source->vocab_size(), 256);
    ASSERT_EQ(source->size(), 4);
    std::vector<std::int64_t> tokens(3);
    source->read(1, tokens);
    EXPECT_EQ(tokens, (std::vector<std::int64_t>{'z', 255, '\n'}));
    EXPECT_EQ(source->name(), path.string());
    EXPECT_EQ(source->locate(3), path.string() + ", byte 3");
    EXPECT_TRUE(source->notes().empty());
    EXPECT_THROW(source->read(2, tokens), LogicError);
}

TEST_F(LoadText, AFolderIsReadRecursivelyInTheOrderOfRelativePaths) {
    write("b.txt", "B");
    write("a/z", "Z");
    write("a/b/c", "C");
    write("a.txt", "A");
    write("empty", "");
    write("\xc3\xa4", "umlaut");
    const auto source = load_text(folder_);
    // '.' sorts before '/', and bytes above 127 sort last.
    EXPECT_EQ(text_of(*source), "ACZBumlaut");
    EXPECT_EQ(source->files().size(), 6U);
    EXPECT_EQ(source->locate(1), (folder_ / "a/b/c").string() + ", byte 0");
    EXPECT_EQ(source->locate(9), ((folder_ / "\xc3\xa4").string() + ", byte 5"));
    EXPECT_EQ(text_of(*load_text(folder_ / "")), "ACZBumlaut") << "with a trailing slash";
}

TEST_F(LoadText, CompressedFilesAreLeftOutOfAFolderWithANote) {
    write("a.gz", "\x1f\x8b\x08 rest"sv);
    write("b", "\xfd\x37zXZ\x00 rest"sv);
    write("c", "text");
    write("d", "\x28\xb5\x2f\xfd rest"sv);
    write("e", "BZh9");
    write("f", "PK\x03\x04"sv);
    const auto source = load_text(folder_);
    EXPECT_EQ(text_of(*source), "text");
    ASSERT_EQ(source->notes().size(), 5U);
    EXPECT_EQ(source->notes().front(), "left out " + (folder_ / "a.gz").string() + ": gzip data");
    EXPECT_EQ(source->notes().at(1), "left out " + (folder_ / "b").string() + ": xz data");
}

TEST_F(LoadText, LinksToFilesAreFollowedOtherLinksAreNoted) {
    write("real/a", "text ");
    fs::create_symlink("real/a", folder_ / "link");
    fs::create_directory_symlink("real", folder_ / "folder-link");
    fs::create_symlink("nowhere", folder_ / "dangling");
    const auto source = load_text(folder_);
    EXPECT_EQ(text_of(*source), "text text ");
    ASSERT_EQ(source->notes().size(), 2U);
    EXPECT_NE(source->notes().at(0).find("dangling"), std::string::npos);
    EXPECT_NE(source->notes().at(1).find("folder-link"), std::string::npos);
}

TEST_F(LoadText, ErrorsNameThePath) {
    const auto missing = (folder_ / "missing").string();
    EXPECT_NE(data_error([&] { load_text(missing); }).find(missing), std::string::npos);
    EXPECT_NE(data_error([&] { load_text(folder_); }).find(folder_.string()), std::string::npos);
    const auto empty = write("empty", "");
    EXPECT_NE(data_error([&] { load_text(empty); }).find(empty.string()), std::string::npos);
    const auto compressed = write("a.gz", "\x1f\x8b\x08"sv);
    const auto message = data_error([&] { load_text(compressed); });
    EXPECT_NE(message.find(compressed.string()), std::string::npos);
    EXPECT_NE(message.find("decompress"), std::string::npos);
    EXPECT_NE(data_error([&] { load_text(folder_); }).find("1 left out"), std::string::npos);
    EXPECT_THROW(load_text("/dev/null"), DataError);
}

TEST_F(LoadText, ATokenOutsideTheModelsVocabularyIsADataErrorWithFileAndOffset) {
    write("a", std::string(5000, 'a'));
    write("b", "abcz");
    const auto source = load_text(folder_);
    EXPECT_NO_THROW(require_vocabulary(*source, 256));
    EXPECT_NO_THROW(require_vocabulary(*source, 'z' + 1));
    const auto message = data_error([&] { require_vocabulary(*source, 'z'); });
    for (const auto& part : {std::string("token 122"), (folder_ / "b").string() + ", byte 3",
                             std::string("model.vocab_size = 122")})
        EXPECT_NE(message.find(part), std::string::npos) << part << " not in " << message;
}

}  // namespace
}  // namespace fullshard::data
