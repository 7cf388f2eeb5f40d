// The folder a run leaves behind.
#pragma once

#include "checkpoint/format/manifest.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::train {

/// Names within run.dir, beside the checkpoints' folder.
inline constexpr std::string_view kEffectiveDeckFile = "effective.ini";
inline constexpr std::string_view kLogFile = "run.log";
inline constexpr std::string_view kMetricsFile = "metrics.jsonl";
inline constexpr std::string_view kHangFolder = "hang";       ///< only after one
inline constexpr std::string_view kTraceFile = "trace.json";  ///< of trace.steps
inline constexpr std::string_view kRankLogsFolder = "logs";

/// Where a rank keeps its own log: logs/rank-00003.log.
std::filesystem::path rank_log_path(const std::filesystem::path& folder, std::int64_t rank);

/// What a run does with its folder.
enum class FolderUse : std::uint8_t {
    kNew,         ///< an empty one, or one to be replaced
    kContinue,    ///< it holds the run that goes on from a checkpoint
    kStartAgain,  ///< it holds a start of this run that was interrupted before a checkpoint
    kLeave,       ///< it holds this run, and that is finished
};

/// What a folder tells of a run that left no checkpoint.
struct EarlierRun {
    std::string effective_deck = {};  ///< text; empty when there is none
    /// Its last one, unless it was interrupted.
    std::optional<std::int64_t> finished_step = std::nullopt;
    bool had_checkpoint = false;  ///< one was whole once

    bool operator==(const EarlierRun&) const = default;
};

/// Throws UsageError when there is something else of that name. Changes nothing, as do the next
/// two.
void check_run_folder(const std::filesystem::path& folder);

bool holds_run(const std::filesystem::path& folder);

/// The run that the folder holds, if any.
std::optional<EarlierRun> read_earlier_run(const std::filesystem::path& folder);

/// Creates the folder and those above it. Throws RunError.
void make_run_folder(const std::filesystem::path& folder);

/// Throws UsageError when data.tokenizer names no folder with a tokenizer's files.
void check_tokenizer(const std::filesystem::path& tokenizer);

/// Copies a tokenizer's files from `tokenizer`, which may be empty for none, into the run's folder
/// for who exports its weights. Throws RunError.
void keep_tokenizer(const std::filesystem::path& folder, const std::filesystem::path& tokenizer);

/// Makes the folder, which exists and is locked by this run, ready for a run that goes on where
/// `progress` stands, zeros for one that starts, and writes the effective deck. A new run finds
/// nothing that an earlier one left. A run that goes on or starts again continues the log; records
/// of later steps, of an evaluation that is still to come, and the last summary are dropped from
/// metrics.jsonl, all records when it starts again, so that nothing is there twice. Returns
/// checkpoints of later steps, which are set aside. A finished run's folder stays as it is. Throws
/// RunError when a run that was to start again has gone on meanwhile.
std::vector<std::filesystem::path> prepare_run_folder(const std::filesystem::path& folder,
                                                      FolderUse use,
                                                      const checkpoint::Progress& progress,
                                                      std::string_view effective_deck);

}  // namespace fullshard::train
