#include "base/error.h"
#include "checkpoint/format/folder_check.h"
#include "ckpt/commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace fullshard::ckpt {
namespace {

using checkpoint::Manifest;
using checkpoint::State;
using checkpoint::TensorEntry;

void print_head(const Manifest& manifest) {
    const auto& progress = manifest.progress;
    const auto& writer = manifest.writer;
    const auto& numerics = manifest.numerics;
    fmt::print("step             {}\n", progress.step);
    fmt::print("optimizer steps  {}\n", progress.optimizer_step);
    if (progress.skipped_steps > 0) fmt::print("skipped steps    {}\n", progress.skipped_steps);
    if (const auto& scaler = progress.loss_scaler) {
        fmt::print("loss scale       {:g}, {} good steps, hysteresis {}\n", scaler->scale,
                   scaler->good_steps, scaler->hysteresis_left);
    }
    fmt::print("tokens           {}\n", progress.tokens);
    fmt::print("next sample      {}\n", progress.samples);
    fmt::print("global batch     {}\n", manifest.global_batch);
    fmt::print("seed             {}\n", manifest.seed);
    fmt::print("written by       FullShard {} ({}), {} ranks, {}\n", writer.version,
               writer.git_hash, writer.ranks, writer.strategy);
    fmt::print("numerics         reduce.order {}, {} threads, {}\n", numerics.reduce_order,
               numerics.threads, numerics.cpu_capability);
    fmt::print("format version   {}\n", manifest.format_version);
    fmt::print("state.h5         {} bytes\n", manifest.file_bytes);
}

/// Parameters in the model's order, with the states each one has.
void print_tensors(const Manifest& manifest) {
    struct Row {
        const TensorEntry* tensor = nullptr;
        std::string states;
    };
    std::vector<Row> rows;
    std::map<std::string_view, std::size_t> row_of;
    std::map<std::string_view, std::int64_t> elements;
    for (const TensorEntry& tensor : manifest.tensors) {
        const auto [at, added] = row_of.emplace(tensor.parameter, rows.size());
        if (added) rows.push_back({&tensor, ""});
        std::string& states = rows[at->second].states;
        states += fmt::format("{}{}", states.empty() ? "" : ", ", state_folder(tensor.state));
        elements[state_folder(tensor.state)] += tensor.numel();
    }
    for (const auto& [state, count] : elements)
        fmt::print("elements         {} in {}\n", count, state);

    std::size_t width = 9;
    for (const Row& row : rows) width = std::max(width, row.tensor->parameter.size());
    fmt::print("\n{:<{}}  {:<16}  {:>12}  states\n", "parameter", width, "shape", "elements");
    for (const Row& row : rows) {
        const std::string shape = fmt::format("[{}]", fmt::join(row.tensor->shape, ", "));
        fmt::print("{:<{}}  {:<16}  {:>12}  {}\n", row.tensor->parameter, width, shape,
                   row.tensor->numel(), row.states);
    }
}

}  // namespace

int inspect(const std::filesystem::path& path) {
    const std::filesystem::path folder = find_checkpoint(path);
    std::vector<std::string> problems;
    const auto check = checkpoint::check_folder(
        folder, [&](const std::string& problem) { problems.push_back(problem); });
    fmt::print("checkpoint       {}\n", folder.string());
    if (problems.empty()) fmt::print("status           complete (verify reads the tensors too)\n");
    for (const std::string& problem : problems) fmt::print("damage           {}\n", problem);
    if (check.manifest) {
        print_head(*check.manifest);
        print_tensors(*check.manifest);
    }
    if (!problems.empty()) throw DataError(fmt::format("{} is not whole", folder.string()));
    return static_cast<int>(ExitCode::kDone);
}

}  // namespace fullshard::ckpt
