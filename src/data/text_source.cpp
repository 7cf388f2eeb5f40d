#include "data/text_source.h"

#include "base/error.h"
#include "base/files.h"
#include "data/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace fullshard::data {
namespace {

namespace fs = std::filesystem;

struct Listing {
    std::vector<fs::path> files;  ///< relative to the folder, sorted
    std::vector<std::string> notes;
};

Listing list_files(const fs::path& folder) {
    Listing listing;
    try {
        for (const auto& entry : fs::recursive_directory_iterator(folder)) {
            if (entry.is_regular_file())
                listing.files.push_back(entry.path().lexically_relative(folder));
            else if (entry.is_symlink())
                listing.notes.push_back(fmt::format("left out {}: a link that leads to no file",
                                                    entry.path().string()));
        }
    } catch (const fs::filesystem_error& error) {
        throw DataError(
            fmt::format("cannot list data.path = {}: {}", folder.string(), error.what()));
    }
    std::ranges::sort(listing.files, {},
                      [](const fs::path& file) { return file.generic_string(); });
    std::ranges::sort(listing.notes);
    return listing;
}

std::shared_ptr<const TextSource> load_folder(const fs::path& folder) {
    auto [relative_paths, notes] = list_files(folder);
    std::string bytes;
    std::vector<TextSource::File> files;
    for (const auto& relative : relative_paths) {
        const fs::path path = folder / relative;
        const std::string content = read_file(path);
        if (const auto format = compression_of(content)) {
            notes.push_back(fmt::format("left out {}: {} data", path.string(), *format));
            continue;
        }
        files.push_back({path, static_cast<std::int64_t>(bytes.size())});
        bytes += content;
    }
    if (bytes.empty())
        throw DataError(fmt::format("data.path = {} holds no text: {} regular files, {} left out",
                                    folder.string(), relative_paths.size(), notes.size()));
    return std::make_shared<TextSource>(folder, std::move(bytes), std::move(files),
                                        std::move(notes));
}

std::shared_ptr<const TextSource> load_file(const fs::path& path) {
    std::string bytes = read_file(path);
    if (bytes.empty()) throw DataError(fmt::format("data.path = {} is empty", path.string()));
    if (const auto format = compression_of(bytes))
        throw DataError(fmt::format("data.path = {} is {} data, not text: decompress it first",
                                    path.string(), *format));
    return std::make_shared<TextSource>(path, std::move(bytes),
                                        std::vector<TextSource::File>{{path, 0}},
                                        std::vector<std::string>{});
}

}  // namespace

TextSource::TextSource(fs::path path, std::string bytes, std::vector<File> files,
                       std::vector<std::string> notes)
    : path_(std::move(path)),
      bytes_(std::move(bytes)),
      files_(std::move(files)),
      notes_(std::move(notes)) {
    ensure(!files_.empty() && files_.front().first_token == 0, "text starts with a file");
}

void TextSource::read(std::int64_t first, std::span<std::int64_t> out) const {
    const auto count = static_cast<std::int64_t>(out.size());
    ensure(first >= 0 && first <= size() && count <= size() - first, "read lies inside the text");
    std::ranges::transform(
        std::string_view(bytes_).substr(static_cast<std::size_t>(first), out.size()), out.begin(),
        [](char c) { return static_cast<unsigned char>(c); });
}

std::string TextSource::locate(std::int64_t position) const {
    ensure(position >= 0 && position < size(), "position lies inside the text");
    const auto next = std::ranges::upper_bound(files_, position, {}, &File::first_token);
    const File& file = *std::prev(next);
    return fmt::format("{}, byte {}", file.path.string(), position - file.first_token);
}

std::vector<std::int64_t> TextSource::file_starts() const {
    std::vector<std::int64_t> starts;
    for (const File& file : files_)
        if (file.first_token < size() && (starts.empty() || starts.back() < file.first_token))
            starts.push_back(file.first_token);
    return starts;
}

std::shared_ptr<const TextSource> load_text(const fs::path& path) {
    std::error_code error;
    const auto status = fs::status(path, error);
    if (fs::is_directory(status)) return load_folder(path);
    if (fs::is_regular_file(status)) return load_file(path);
    throw DataError(
        fmt::format("data.path = {}: {}", path.string(),
                    fs::exists(status) ? "neither a file nor a folder" : error.message()));
}

}  // namespace fullshard::data
