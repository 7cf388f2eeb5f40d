#include "base/files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"

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

TEST(ReadFile, MissingFileIsADataError) {
    EXPECT_THROW(read_file("/nonexistent-fullshard/a"), DataError);
}

}  // namespace
}  // namespace fullshard
