#include "train/run_folder.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/folder.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace fullshard::train {

namespace fs = std::filesystem;

namespace {

/// Whether a record of metrics.jsonl belongs to the run up to `step`. A line that a crash cut short
/// does not.
bool is_of_past(const std::string& line, std::int64_t step) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || record.value("kind", "") == "summary") return false;
    return record.value("step", std::int64_t{0}) <= step;
}

}  // namespace

void check_run_folder(const fs::path& folder, bool may_hold_run) {
    std::error_code ignored;
    if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) {
        throw UsageError(
            fmt::format("run.dir = {} is not a folder; name another", folder.string()));
    }
    if (!may_hold_run && fs::exists(folder / kMetricsFile, ignored)) {
        throw UsageError(fmt::format(
            "run.dir = {} already holds a run that cannot be continued (no checkpoint); "
            "name another folder, or set run.overwrite = on to replace it",
            folder.string()));
    }
}

void make_run_folder(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error)
        throw RunError(
            fmt::format("cannot create run.dir = {}: {}", folder.string(), error.message()));
}

void start_run_folder(const fs::path& folder, std::string_view effective_deck) {
    for (const std::string_view file : {kLogFile, kMetricsFile}) fs::remove(folder / file);
    fs::remove_all(folder / checkpoint::kCheckpointsFolder);
    write_file_atomically(folder / kEffectiveDeckFile, effective_deck);
}

void continue_run_folder(const fs::path& folder, std::int64_t step,
                         std::string_view effective_deck) {
    std::string kept;
    if (fs::exists(folder / kMetricsFile)) {
        std::istringstream lines(read_file(folder / kMetricsFile));
        for (std::string line; std::getline(lines, line);) {
            if (is_of_past(line, step)) kept += line + '\n';
        }
    }
    write_file_atomically(folder / kMetricsFile, kept);
    write_file_atomically(folder / kEffectiveDeckFile, effective_deck);
}

}  // namespace fullshard::train
