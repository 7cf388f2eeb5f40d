#include "train/launch_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace fullshard::train {

namespace {

bool is_plain(char c) {
    constexpr std::string_view kPlain = "_-./=:,+@%";
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           kPlain.find(c) != std::string_view::npos;
}

std::string quoted(const std::string& word) {
    if (!word.empty() && std::ranges::all_of(word, is_plain)) return word;
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

}  // namespace

std::string launch_text(const LaunchInfo& launch) {
    std::string text = launch.launcher == "none" ? "no launcher" : launch.launcher;
    if (launch.job.empty()) return text;
    text += ", Slurm job " + launch.job;
    if (!launch.partition.empty()) text += " on partition " + launch.partition;
    if (launch.restarts > 0) text += fmt::format(", restart {}", launch.restarts);
    return text;
}

std::string shell_text(std::span<const std::string> words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + quoted(word);
    return text;
}

std::string launch_line(const LaunchInfo& launch, int ranks, std::span<const std::string> command) {
    if (launch.launcher == "none") return shell_text(command);
    const bool says_pmix = launch.launcher == "srun" && launch.pmix;
    return fmt::format("{}{} -n {} {}", launch.launcher, says_pmix ? " --mpi=pmix" : "", ranks,
                       shell_text(command));
}

}  // namespace fullshard::train
