#include "base/error.h"
#include "checkpoint/format/fit.h"
#include "checkpoint/format/folder_check.h"
#include "ckpt/commands.h"
#include "spec/architecture.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
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
    if (!has_moments(manifest)) fmt::print("moments          none: the optimizer starts afresh\n");
    if (!manifest.architecture.empty()) {
        const auto model =
            spec::parse_hf_config(manifest.architecture, "the manifest's architecture");
        fmt::print("model            {}\n", spec::describe(model).family);
    }
    fmt::print("format version   {}\n", manifest.format_version);
    for (const checkpoint::FileEntry& file : manifest.files) {
        fmt::print("{:<16} {} bytes\n", file.name, file.bytes);
    }
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

void print_text(const std::filesystem::path& folder, const std::optional<Manifest>& manifest,
                const std::vector<std::string>& problems) {
    fmt::print("checkpoint       {}\n", folder.string());
    if (problems.empty()) fmt::print("status           complete (verify reads the tensors too)\n");
    for (const std::string& problem : problems) fmt::print("damage           {}\n", problem);
    if (!manifest) return;
    print_head(*manifest);
    print_tensors(*manifest);
}

/// The manifest, without where its bytes lie, and what is wrong with the folder.
void print_json(const std::filesystem::path& folder, const std::optional<Manifest>& manifest,
                const std::vector<std::string>& problems) {
    using Json = nlohmann::ordered_json;
    Json json = {{"checkpoint", folder.string()}, {"damage", problems}};
    if (manifest) {
        json.update(Json::parse(checkpoint::to_json(*manifest)));
        for (Json& tensor : json.at("tensors")) {
            tensor.erase("parts");
            tensor.erase("blocks");
        }
    }
    fmt::print("{}\n", json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
}

}  // namespace

int inspect(const Command& command) {
    const std::filesystem::path folder = find_checkpoint(command.paths[0]);
    std::vector<std::string> problems;
    const auto check = checkpoint::check_folder(
        folder, [&](const std::string& problem) { problems.push_back(problem); });
    if (command.json) {
        print_json(folder, check.manifest, problems);
    } else {
        print_text(folder, check.manifest, problems);
    }
    if (!problems.empty()) throw DataError(fmt::format("{} is not whole", folder.string()));
    return static_cast<int>(ExitCode::kDone);
}

}  // namespace fullshard::ckpt
