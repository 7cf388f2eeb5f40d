#include "data/file_list.h"

#include "base/error.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <string>

namespace fullshard::data {
namespace {

namespace fs = std::filesystem;

template <typename Wanted>
std::vector<fs::path> files_in(const fs::path& folder, Wanted wanted) {
    std::vector<fs::path> files;
    try {
        for (const auto& entry : fs::directory_iterator(folder))
            if (entry.is_regular_file() && wanted(entry.path().filename()))
                files.push_back(entry.path());
    } catch (const fs::filesystem_error& error) {
        throw DataError(fmt::format("cannot list {}: {}", folder.string(), error.what()));
    }
    std::ranges::sort(files, {}, [](const fs::path& file) { return file.filename().string(); });
    return files;
}

}  // namespace

std::vector<fs::path> list_files(const fs::path& path,
                                 std::initializer_list<std::string_view> extensions) {
    std::error_code error;
    const auto status = fs::status(path, error);
    if (fs::is_regular_file(status)) return {path};
    if (fs::is_directory(status)) {
        auto files = files_in(path, [&](const fs::path& name) {
            return std::ranges::find(extensions, name.extension().string()) != extensions.end();
        });
        if (files.empty())
            throw DataError(fmt::format("{} holds no file named *{}", path.string(),
                                        fmt::join(extensions, " or *")));
        return files;
    }
    const std::string pattern = path.filename().string();
    if (pattern.find_first_of("*?") == std::string::npos)
        throw DataError(
            fmt::format("{}: {}", path.string(),
                        fs::exists(status) ? "neither a file nor a folder" : error.message()));
    auto files =
        files_in(path.has_parent_path() ? path.parent_path() : ".", [&](const fs::path& name) {
            return fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD) == 0;
        });
    if (files.empty()) throw DataError(fmt::format("no file matches {}", path.string()));
    return files;
}

}  // namespace fullshard::data
