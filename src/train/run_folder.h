// The folder a run leaves behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace fullshard::train {

/// Names within run.dir, beside the checkpoints' folder.
inline constexpr std::string_view kEffectiveDeckFile = "effective.ini";
inline constexpr std::string_view kLogFile = "run.log";
inline constexpr std::string_view kMetricsFile = "metrics.jsonl";
inline constexpr std::string_view kHangFolder = "hang";  ///< only after one

/// Throws UsageError when the folder cannot be one, or holds a run and `may_hold_run` is off.
/// Changes nothing.
void check_run_folder(const std::filesystem::path& folder, bool may_hold_run);

/// Creates the folder and those above it. Throws RunError.
void make_run_folder(const std::filesystem::path& folder);

/// Leaves the folder without anything an earlier run left, and with the effective deck.
void start_run_folder(const std::filesystem::path& folder, std::string_view effective_deck);

/// The run goes on after `step`: drops records of later steps, and the last summary, from
/// metrics.jsonl, so that no step is there twice; the log is continued. Writes the effective deck.
void continue_run_folder(const std::filesystem::path& folder, std::int64_t step,
                         std::string_view effective_deck);

}  // namespace fullshard::train
