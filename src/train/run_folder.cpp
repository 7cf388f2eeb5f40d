#include "train/run_folder.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/tokenizer_files.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace fullshard::train {

namespace fs = std::filesystem;

namespace {

/// Lines of metrics.jsonl, none where there is no such file.
std::vector<std::string> metrics_lines(const fs::path& folder) {
    std::vector<std::string> lines;
    if (!holds_run(folder)) return lines;
    std::istringstream text(read_file(folder / kMetricsFile));
    for (std::string line; std::getline(text, line);) lines.push_back(std::move(line));
    return lines;
}

/// A line that a crash cut short is no object.
nlohmann::json record_of(const std::string& line) {
    return nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
}

bool is_of_past(const std::string& line, const checkpoint::Progress& progress) {
    const nlohmann::json record = record_of(line);
    if (!record.is_object()) return false;
    const std::string kind = record.value("kind", "");
    const auto step = record.value("step", std::int64_t{0});
    if (kind == "summary") return false;
    if (kind == "eval" && progress.evaluation_pending) return step < progress.step;
    return step <= progress.step;
}

void drop_later_records(const fs::path& folder, const checkpoint::Progress& progress) {
    std::string kept;
    for (const std::string& line : metrics_lines(folder)) {
        if (is_of_past(line, progress)) kept += line + '\n';
    }
    write_file_atomically(folder / kMetricsFile, kept);
}

}  // namespace

fs::path rank_log_path(const fs::path& folder, std::int64_t rank) {
    return folder / kRankLogsFolder / fmt::format("rank-{:05}.log", rank);
}

void check_run_folder(const fs::path& folder) {
    std::error_code ignored;
    if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) {
        throw UsageError(
            fmt::format("run.dir = {} is not a folder; name another", folder.string()));
    }
}

bool holds_run(const fs::path& folder) {
    std::error_code ignored;
    return fs::exists(folder / kMetricsFile, ignored);
}

std::optional<EarlierRun> read_earlier_run(const fs::path& folder) {
    if (!holds_run(folder)) return std::nullopt;
    EarlierRun run;
    for (const std::string& line : metrics_lines(folder)) {
        const nlohmann::json record = record_of(line);
        if (!record.is_object()) continue;
        const std::string kind = record.value("kind", "");
        if (kind == "checkpoint") run.had_checkpoint = true;
        if (kind != "summary") continue;
        run.finished_step.reset();
        if (!record.value("stopped_early", false)) {
            run.finished_step = record.value("step", std::int64_t{0});
        }
    }
    if (fs::exists(folder / kEffectiveDeckFile)) {
        run.effective_deck = read_file(folder / kEffectiveDeckFile);
    }
    return run;
}

namespace {

/// The folder was judged before it was locked: another job may have gone on in between.
void require_unsaved(const fs::path& folder) {
    const auto run = read_earlier_run(folder);
    if (!checkpoint::has_finished_save(folder / checkpoint::kCheckpointsFolder) &&
        !(run && run->finished_step)) {
        return;
    }
    throw RunError(fmt::format(
        "run.dir = {} changed while this job started: another one went on there; start it again",
        folder.string()));
}

}  // namespace

void make_run_folder(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)
        throw RunError(
            fmt::format("cannot create run.dir = {}: {}", folder.string(), error.message()));
}

void check_tokenizer(const fs::path& tokenizer) {
    if (tokenizer.empty() || !checkpoint::tokenizer_files_in(tokenizer).empty()) return;
    throw UsageError(
        fmt::format("data.tokenizer = {} is no folder with a tokenizer's files: name the one that "
                    "tools/tokenize.py wrote, or nothing",
                    tokenizer.string()));
}

void keep_tokenizer(const fs::path& folder, const fs::path& tokenizer) {
    if (tokenizer.empty()) return;
    checkpoint::copy_files(checkpoint::tokenizer_files_in(tokenizer),
                           folder / checkpoint::kTokenizerFolder);
}

std::vector<fs::path> prepare_run_folder(const fs::path& folder, FolderUse use,
                                         const checkpoint::Progress& progress,
                                         std::string_view effective_deck) {
    if (use == FolderUse::kLeave) return {};
    const fs::path checkpoints = folder / checkpoint::kCheckpointsFolder;
    if (use == FolderUse::kStartAgain) require_unsaved(folder);
    std::vector<fs::path> abandoned;
    if (use == FolderUse::kContinue) {
        drop_later_records(folder, progress);
        abandoned = checkpoint::abandon_after(checkpoints, progress.step);
    } else {
        fs::remove(folder / kMetricsFile);
    }
    if (use == FolderUse::kNew) {
        fs::remove(folder / kLogFile);
        fs::remove_all(folder / kRankLogsFolder);
        fs::remove_all(checkpoints);
    }
    write_file_atomically(folder / kEffectiveDeckFile, effective_deck);
    return abandoned;
}

}  // namespace fullshard::train
