// Runs fullshard-ckpt as its users do.
#pragma once

#include "base/files.h"
#include "checkpoint/toy_checkpoint.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

namespace fullshard::checkpoint::toy {

struct Result {
    int exit_code = -1;
    std::string out;
    std::string error;
};

/// A test with a folder of its own.
class ToolRunner : public testing::Test {
  protected:
    Result run(const std::string& words) const {
        const std::filesystem::path error = folder_.path() / "stderr";
        const std::string command = FULLSHARD_CKPT " " + words + " 2>" + error.string();
        FILE* pipe = popen(command.c_str(), "r");
        Result result;
        std::array<char, 4096> buffer;
        while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
            result.out.append(buffer.data(), got);
        }
        const int status = pclose(pipe);
        if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
        result.error = read_file(error);
        return result;
    }
    /// Expects exit code 2 and one line that holds `part`.
    void expect_usage_error(const std::string& words, const std::string& part) const {
        const Result result = run(words);
        EXPECT_EQ(result.exit_code, 2) << words;
        EXPECT_EQ(result.out, "");
        EXPECT_TRUE(contains(result.error, part));
        EXPECT_EQ(std::ranges::count(result.error, '\n'), 1) << result.error;
    }

    TemporaryFolder folder_;
};

}  // namespace fullshard::checkpoint::toy
