#include "checkpoint/format/folder_check.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"

#include <fmt/format.h>

namespace fullshard::checkpoint {
namespace {

using Problem = std::function<void(const std::string&)>;

constexpr std::string_view kCompleteBegin = "XXH3 (manifest.json) = ";

/// The digits of a line that complete_text() could have made, or nothing.
std::string_view digest_of_line(std::string_view line) {
    constexpr std::size_t kDigits = 16;
    if (line.size() != kCompleteBegin.size() + kDigits + 1) return {};
    if (!line.starts_with(kCompleteBegin) || !line.ends_with('\n')) return {};
    const std::string_view digits = line.substr(kCompleteBegin.size(), kDigits);
    return digits.find_first_not_of("0123456789abcdef") == digits.npos ? digits
                                                                       : std::string_view{};
}

/// "step-" and digits: a name that promises a step.
bool is_step_name(std::string_view name) {
    constexpr std::string_view kPrefix = "step-";
    return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
           name.find_first_not_of("0123456789", kPrefix.size()) == name.npos;
}

/// False when the manifest's bytes are not those that were committed.
bool check_complete(const std::filesystem::path& folder, std::string_view manifest_text,
                    const Problem& problem) {
    const std::filesystem::path path = folder / kCompleteFile;
    if (!std::filesystem::exists(path)) {
        problem(fmt::format("{} is missing: the save did not finish", path.string()));
        return true;
    }
    const std::string content = read_file(path);
    const std::string expected = complete_text(manifest_text);
    if (content == expected) return true;
    // Another digest in a sound line speaks of the manifest, anything else of COMPLETE itself.
    const std::string_view digits = digest_of_line(content);
    if (digits.empty()) {
        problem(
            fmt::format("{} is damaged: it does not hold the manifest's digest", path.string()));
        return true;
    }
    problem(fmt::format("{} is damaged: its digest is {}, COMPLETE says {}",
                        (folder / kManifestFile).string(), digest_text(digest(manifest_text)),
                        digits));
    return false;
}

std::optional<Manifest> read_manifest(const std::filesystem::path& folder, const Problem& problem) {
    const std::filesystem::path path = folder / kManifestFile;
    try {
        const std::string text = read_file(path);
        if (!check_complete(folder, text, problem)) return std::nullopt;
        return parse_manifest(text, path.string());
    } catch (const DataError& error) {
        problem(error.what());
        return std::nullopt;
    }
}

void check_step(const std::filesystem::path& folder, const Manifest& manifest,
                const Problem& problem) {
    const std::string name = (folder / "").parent_path().filename().string();  // a slash may end it
    if (is_step_name(name) && name != folder_name(manifest.progress.step)) {
        problem(fmt::format("{} holds step {}", folder.string(), manifest.progress.step));
    }
}

void check_deck(const std::filesystem::path& folder, const Manifest& manifest,
                const Problem& problem) {
    const std::filesystem::path path = folder / kDeckFile;
    try {
        if (read_file(path) != manifest.effective_deck) {
            problem(fmt::format("{} is not the deck in the manifest", path.string()));
        }
    } catch (const DataError& error) {
        problem(error.what());
    }
}

bool check_structure(const std::filesystem::path& folder, const Manifest& manifest,
                     std::int64_t index, const Problem& problem) {
    const FileEntry& expected = manifest.files[static_cast<std::size_t>(index)];
    const std::filesystem::path path = folder / expected.name;
    std::error_code error;
    const auto size = static_cast<std::int64_t>(std::filesystem::file_size(path, error));
    if (error) {
        problem(fmt::format("{}: {}", path.string(), error.message()));
        return false;
    }
    if (size != expected.bytes) {
        problem(fmt::format("{} has {} bytes, the manifest says {}", path.string(), size,
                            expected.bytes));
        return false;
    }
    try {
        const FileEntry found = read_structure(path, manifest.tensors, index);
        if (found == expected) return true;
        problem(fmt::format(
            "{}: HDF5's structures are damaged: their digest is {}, the manifest says {}",
            path.string(), digest_text(found.structure_digest),
            digest_text(expected.structure_digest)));
    } catch (const DataError& bad_read) {
        problem(bad_read.what());
    }
    return false;
}

}  // namespace

std::string complete_text(std::string_view manifest_text) {
    return fmt::format("{}{}\n", kCompleteBegin, digest_text(digest(manifest_text)));
}

FolderCheck check_folder(const std::filesystem::path& folder, const Problem& problem) {
    if (!std::filesystem::is_directory(folder)) {
        problem(fmt::format("{} is no folder", folder.string()));
        return {};
    }
    FolderCheck check{.manifest = read_manifest(folder, problem)};
    if (check.manifest) {
        check_step(folder, *check.manifest, problem);
        check_deck(folder, *check.manifest, problem);
        for (std::int64_t i = 0; i < std::ssize(check.manifest->files); ++i) {
            check.structure_whole.push_back(check_structure(folder, *check.manifest, i, problem));
        }
    }
    return check;
}

}  // namespace fullshard::checkpoint
