#include "base/files.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace fullshard {
namespace {

TEST(WriteFileAtomically, ReplacesWholeContentAndLeavesNoTemporary) {
    const auto folder = std::filesystem::path(testing::TempDir()) / "fullshard_files_test";
    std::filesystem::create_directories(folder);
    write_file_atomically(folder / "a", std::string(100000, 'x'));
    write_file_atomically(folder / "a", "short");
    EXPECT_EQ(read_file(folder / "a"), "short");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
    std::filesystem::remove_all(folder);
}

TEST(WriteFileAtomically, MissingFolderIsAnErrorThatNamesThePath) {
    try {
        write_file_atomically("/nonexistent-fullshard/a", "x");
        FAIL() << "no error";
    } catch (const RunError& error) {
        EXPECT_NE(std::string(error.what()).find("/nonexistent-fullshard/a"), std::string::npos);
    }
}

TEST(ReadFile, MissingFileAndFolderAreDataErrors) {
    EXPECT_THROW(read_file("/nonexistent-fullshard/a"), DataError);
    EXPECT_THROW(read_file("/"), DataError);
}

TEST(ReadFile, ReadsContentLongerThanItsChunks) {
    const auto path = std::filesystem::path(testing::TempDir()) / "fullshard_long_file";
    std::string content(3'000'001, 'x');
    content[2'999'999] = 'y';
    write_file_atomically(path, content);
    EXPECT_EQ(read_file(path), content);
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace fullshard
