// The words behind the tool's name.
#pragma once

#include "checkpoint/export/consolidate.h"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::ckpt {

enum class Action { kInspect, kVerify, kDiff, kConsolidate, kImport };

struct Command {
    Action action = Action::kInspect;
    std::vector<std::filesystem::path> paths;     ///< two for diff, else one
    std::filesystem::path out;                    ///< consolidate, import
    bool json = false;                            ///< inspect
    std::optional<double> rtol;                   ///< diff: relative tolerance, zero or more
    std::optional<int> threads;                   ///< verify, diff
    bool force = false;                           ///< consolidate, import: replace what is there
    bool show_mapping = false;                    ///< import
    std::optional<std::filesystem::path> config;  ///< import: config.json of the weights
    checkpoint::ConsolidateOptions consolidate;
};

/// Answers --help and --version: the text to print, or nothing when the words ask for something
/// else.
std::optional<std::string> immediate_answer(std::span<const std::string> words);

/// Throws UsageError naming the word that is wrong and what would be right.
Command parse_command(std::span<const std::string> words);

}  // namespace fullshard::ckpt
