// The words behind the tool's name.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::ckpt {

enum class Action { kInspect, kVerify, kDiff, kConsolidate };

struct Command {
    Action action = Action::kInspect;
    std::vector<std::filesystem::path> paths;  ///< two for diff, else one
    std::optional<double> rtol;                ///< diff: relative tolerance, zero or more
    std::filesystem::path out;                 ///< consolidate
    bool force = false;                        ///< consolidate: replace an existing output
};

/// Answers --help and --version: the text to print, or nothing when the words ask for something
/// else.
std::optional<std::string> immediate_answer(std::span<const std::string> words);

/// Throws UsageError naming the word that is wrong and what would be right.
Command parse_command(std::span<const std::string> words);

}  // namespace fullshard::ckpt
