#include "checkpoint/format/folder.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/folder_check.h"
#include "checkpoint/format/posix_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>
#include <utility>

namespace fullshard::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::string_view kReplacedSuffix = ".replaced";
constexpr std::string_view kAbandonedSuffix = ".abandoned";

/// A folder named after a step. Ordered by step; of equal ones the final folder comes last.
struct Candidate {
    enum class Kind { kTemporary, kReplaced, kFinal };
    std::int64_t step = 0;
    Kind kind = Kind::kFinal;
    fs::path path;

    auto operator<=>(const Candidate&) const = default;
};

std::optional<Candidate> candidate(const fs::path& path) {
    using Kind = Candidate::Kind;
    const std::string name = path.filename().string();
    constexpr std::string_view kPrefix = "step-";
    if (!name.starts_with(kPrefix)) return std::nullopt;
    Candidate found{.path = path};
    const auto [end, error] =
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), found.step);
    const std::string_view number(name.data(), end);
    if (error != std::errc() || found.step < 0 || number != folder_name(found.step))
        return std::nullopt;
    const std::string_view suffix = std::string_view(name).substr(number.size());
    if (suffix == kTemporarySuffix) {
        found.kind = Kind::kTemporary;
    } else if (suffix == kReplacedSuffix) {
        found.kind = Kind::kReplaced;
    } else if (!suffix.empty()) {
        return std::nullopt;
    }
    return found;
}

/// Newest first. A missing or unreadable parent is an error unless it is absent.
std::vector<Candidate> candidates(const fs::path& parent) {
    std::vector<Candidate> found;
    if (!fs::exists(parent)) return found;
    std::error_code error;
    for (fs::directory_iterator entry(parent, error), end; !error && entry != end;
         entry.increment(error)) {
        if (auto one = candidate(entry->path())) found.push_back(std::move(*one));
    }
    if (error) throw DataError(fmt::format("cannot list {}: {}", parent.string(), error.message()));
    std::ranges::sort(found, std::ranges::greater{});
    return found;
}

fs::path with_suffix(const fs::path& folder, std::string_view suffix) {
    return folder.string() + std::string(suffix);
}

/// The name without suffix: `.../step-00000010`.
fs::path final_path(const Candidate& candidate) {
    return candidate.path.parent_path() / folder_name(candidate.step);
}

void remove_tree(const fs::path& path) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) throw RunError(fmt::format("cannot remove {}: {}", path.string(), error.message()));
}

/// Deletes a checkpoint under a name that is never taken for a whole one.
void discard(const Candidate& candidate) {
    if (!fs::exists(candidate.path)) return;
    const fs::path trash = with_suffix(final_path(candidate), kTemporarySuffix);
    remove_tree(trash);
    rename_path(candidate.path, trash);
    sync_folder(trash.parent_path());
    remove_tree(trash);
}

/// Nobody reads a folder that is not committed: its files need no names of their own while they are
/// written, and their names are made durable together.
void write_durably(const fs::path& path, std::string_view content) {
    PosixFile file = PosixFile::create(path);
    file.write(std::as_bytes(std::span(content)));
    file.sync_data();
    file.close();
}

bool is_whole(const Candidate& candidate) {
    try {
        static_cast<void>(open_folder(candidate.path));
        return true;
    } catch (const DataError&) {
        return false;
    }
}

bool looks_like_checkpoint(const fs::path& path) {
    const fs::path named = (path / "").parent_path();  // a slash may end it
    return candidate(named) ||
           std::ranges::any_of(
               std::initializer_list<std::string_view>{kStateFile, kManifestFile, kCompleteFile},
               [&](std::string_view file) { return fs::exists(path / file); });
}

}  // namespace

std::string folder_name(std::int64_t step) {
    return fmt::format("step-{:08}", step);
}

fs::path temporary_folder(const fs::path& parent, std::int64_t step) {
    return parent / with_suffix(folder_name(step), kTemporarySuffix);
}

fs::path begin_save(const fs::path& parent, std::int64_t step) {
    for (const Candidate& old : candidates(parent)) {
        if (old.kind == Candidate::Kind::kTemporary) remove_tree(old.path);
    }
    const fs::path temporary = temporary_folder(parent, step);
    std::error_code error;
    fs::create_directories(temporary, error);
    if (error)
        throw RunError(fmt::format("cannot make {}: {}", temporary.string(), error.message()));
    return temporary;
}

void discard_save(const fs::path& temporary) noexcept {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
}

void require_space(const fs::path& folder, std::int64_t bytes) {
    fs::path existing = fs::absolute(folder);
    while (!fs::exists(existing) && existing.has_relative_path()) existing = existing.parent_path();
    std::error_code error;
    const fs::space_info space = fs::space(existing, error);
    if (error) return;  // not every file system can tell
    // HDF5's structures and the manifest are small beside the tensors.
    const std::int64_t needed = bytes + bytes / 20 + (std::int64_t{1} << 20);
    if (std::cmp_greater_equal(space.available, needed)) return;
    throw RunError(fmt::format("a checkpoint in {} needs {} bytes, the disk has {} left",
                               folder.string(), needed, space.available));
}

fs::path commit_save(const fs::path& temporary, const Manifest& manifest,
                     const StageHook& at_stage) {
    const auto pass = [&](SaveStage stage) {
        if (at_stage) at_stage(stage);
    };
    const auto save = candidate(temporary);
    ensure(
        save && save->kind == Candidate::Kind::kTemporary && save->step == manifest.progress.step,
        "a save is committed from the folder that begin_save() made");
    const std::string text = to_json(manifest);
    write_durably(temporary / kDeckFile, manifest.effective_deck);
    write_durably(temporary / kManifestFile, text);
    pass(SaveStage::kBeforeComplete);
    write_durably(temporary / kCompleteFile, complete_text(text));
    sync_folder(temporary);
    static_cast<void>(open_folder(temporary));

    pass(SaveStage::kBeforeRename);
    const fs::path target = final_path(*save);
    const Candidate replaced{save->step, Candidate::Kind::kReplaced,
                             with_suffix(target, kReplacedSuffix)};
    if (fs::exists(target)) {
        // An older .replaced is left from a crash after the step's final folder was in place.
        remove_tree(replaced.path);
        rename_path(target, replaced.path);
    }
    rename_path(temporary, target);
    sync_folder(target.parent_path());
    discard(replaced);
    return target;
}

void sync_file(const fs::path& path) {
    PosixFile::open_to_write(path).sync();
}

Manifest open_folder(const fs::path& folder) {
    const FolderCheck check =
        check_folder(folder, [](const std::string& problem) { throw DataError(problem); });
    return *check.manifest;
}

Latest find_latest(const fs::path& parent) {
    Latest latest;
    for (const Candidate& one : candidates(parent)) {
        if (one.kind == Candidate::Kind::kTemporary) {
            latest.skipped.push_back(fmt::format("{} is an unfinished save", one.path.string()));
            continue;
        }
        try {
            static_cast<void>(open_folder(one.path));
            latest.folder = one.path;
            break;
        } catch (const DataError& error) {
            latest.skipped.emplace_back(error.what());
        }
    }
    return latest;
}

bool has_finished_save(const fs::path& parent) {
    return std::ranges::any_of(candidates(parent), [](const Candidate& one) {
        return one.kind != Candidate::Kind::kTemporary;
    });
}

Latest locate_checkpoint(const fs::path& path) {
    if (!fs::is_directory(path)) throw DataError(fmt::format("{} is no folder", path.string()));
    if (looks_like_checkpoint(path)) return {path, {}};
    Latest latest;
    for (const fs::path& parent : {path, path / kCheckpointsFolder}) {
        latest = find_latest(parent);
        if (latest.folder || !latest.skipped.empty()) break;
    }
    if (!latest.folder) {
        throw DataError(fmt::format("{} holds no whole checkpoint{}{}", path.string(),
                                    latest.skipped.empty() ? "" : ": ",
                                    fmt::join(latest.skipped, "; ")));
    }
    return latest;
}

std::vector<fs::path> abandon_after(const fs::path& parent, std::int64_t step) {
    std::vector<fs::path> abandoned;
    for (const Candidate& one : candidates(parent)) {
        if (one.step <= step || one.kind == Candidate::Kind::kTemporary || !is_whole(one)) continue;
        abandoned.push_back(with_suffix(final_path(one), kAbandonedSuffix));
        remove_tree(abandoned.back());
        rename_path(one.path, abandoned.back());
    }
    if (!abandoned.empty()) sync_folder(parent);
    return abandoned;
}

std::vector<fs::path> retain(const fs::path& parent, const Retention& retention,
                             const fs::path& newest) {
    std::vector<fs::path> deleted;
    if (retention.keep_last == 0) return deleted;
    std::int64_t whole = 0;
    std::int64_t last_step = -1;
    for (const Candidate& one : candidates(parent)) {
        if (one.kind == Candidate::Kind::kTemporary) continue;
        if (!is_whole(one)) continue;
        // A replaced folder beside its whole successor is surplus, not one more checkpoint.
        const bool surplus = one.step == last_step;
        if (!surplus) ++whole;
        last_step = one.step;
        const bool marked = retention.keep_every > 0 && one.step % retention.keep_every == 0;
        const bool wanted = whole <= retention.keep_last || marked || one.path == newest;
        if (wanted && !surplus) continue;
        discard(one);
        deleted.push_back(one.path);
    }
    return deleted;
}

}  // namespace fullshard::checkpoint
