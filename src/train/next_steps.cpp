#include "train/next_steps.h"

#include "train/run_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <string_view>

namespace fullshard::train {

namespace fs = std::filesystem;

namespace {

/// The checkpoint tool is installed beside the program, unless that is one with a model of its own.
std::string checkpoint_tool(const std::string& program) {
    const fs::path path(program);
    if (!path.has_parent_path()) return "fullshard-ckpt";
    const fs::path tool = path.parent_path() / "fullshard-ckpt";
    std::error_code ignored;
    return fs::exists(tool, ignored) ? tool.string() : "fullshard-ckpt";
}

std::string continuation(const EndOfRun& end, const config::Deck& deck, const LaunchInfo& launch,
                         int ranks) {
    const std::string_view with =
        deck.checkpoint.resume == "auto" ? "" : ", with checkpoint.resume = auto";
    if (launch.batch) {
        return fmt::format(
            "next: the job's script, by sbatch unless it requeues itself{}, goes on from step {}",
            with, end.step);
    }
    return fmt::format("next: the same command{}{} goes on from step {}: {}", with,
                       with.empty() ? "" : ",", end.step,
                       launch_line(launch, ranks, launch.command));
}

}  // namespace

std::vector<std::string> next_steps(const EndOfRun& end, const config::Deck& deck,
                                    const LaunchInfo& launch, int ranks) {
    if (end.stopped_early) return {continuation(end, deck, launch, ranks)};
    if (!end.saved) return {"next: nothing was saved; set checkpoint.every to keep the weights"};
    const std::string folder = deck.run.dir.string();
    const std::string weights = (deck.run.dir / "model.safetensors").string();
    const std::string& program = launch.command.front();
    std::vector<std::string> lines{
        "next: " + shell_text(std::vector<std::string>{checkpoint_tool(program), "consolidate",
                                                       folder, "--out", weights})};
    if (end.evaluates) {
        const std::vector<std::string> words{program, "eval",
                                             (deck.run.dir / kEffectiveDeckFile).string(),
                                             "--model.init_from", weights};
        lines.push_back("then: " + launch_line(launch, ranks, words));
    }
    return lines;
}

}  // namespace fullshard::train
