#include "checkpoint/format/tokenizer_files.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/folder.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <system_error>

namespace fullshard::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::array kPatterns = {"tokenizer*.json",
                                  "tokenizer.bin",
                                  "*.model",
                                  "vocab.json",
                                  "vocab.txt",
                                  "merges.txt",
                                  "special_tokens_map.json",
                                  "added_tokens.json",
                                  "chat_template*",
                                  "generation_config.json"};

bool is_tokenizer_file(const fs::directory_entry& entry) {
    const std::string name = entry.path().filename().string();
    return entry.is_regular_file() && std::ranges::any_of(kPatterns, [&](const char* pattern) {
               return fnmatch(pattern, name.c_str(), 0) == 0;
           });
}

}  // namespace

fs::path tokenizer_folder(const fs::path& checkpoints) {
    fs::path folder = fs::absolute(checkpoints).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    if (folder.filename() == kCheckpointsFolder) folder = folder.parent_path();
    return folder / kTokenizerFolder;
}

std::vector<fs::path> tokenizer_files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    if (!fs::is_directory(folder)) return files;
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (is_tokenizer_file(entry)) files.push_back(entry.path());
    }
    std::ranges::sort(files);
    return files;
}

void require_room(const std::vector<fs::path>& files, const fs::path& folder) {
    for (const fs::path& file : files) {
        const fs::path place = folder / file.filename();
        if (!fs::exists(place) || read_file(place) == read_file(file)) continue;
        throw UsageError(fmt::format(
            "{} exists and differs from {}: choose another folder, or --force to replace it",
            place.string(), file.string()));
    }
}

std::vector<fs::path> copy_files(const std::vector<fs::path>& files, const fs::path& folder) {
    std::vector<fs::path> copies;
    if (files.empty()) return copies;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw RunError(fmt::format("{}: {}", folder.string(), error.message()));
    for (const fs::path& file : files) {
        copies.push_back(folder / file.filename());
        if (fs::exists(copies.back()) && fs::equivalent(copies.back(), file)) continue;
        write_file_atomically(copies.back(), read_file(file));
    }
    return copies;
}

}  // namespace fullshard::checkpoint
