#include "ckpt/commands.h"

#include "base/error.h"
#include "checkpoint/exchange/architecture.h"
#include "checkpoint/exchange/model_weights.h"
#include "checkpoint/export/consolidate.h"
#include "checkpoint/export/import.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/verify.h"
#include "ckpt/progress.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace fullshard::ckpt {
namespace {

std::optional<std::int64_t> number_in_environment(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
    if (error != std::errc() || *end != '\0' || value < 0) return std::nullopt;
    return value;
}

/// The task of a Slurm step. A batch script outside of srun has a SLURM_PROCID too, but no step's
/// number of tasks.
checkpoint::Copy copy_of_slurm() {
    const auto count = number_in_environment("SLURM_STEP_NUM_TASKS");
    const auto index = number_in_environment("SLURM_PROCID");
    if (!count || !index || *index >= *count) return {};
    return {.index = *index, .count = *count};
}

}  // namespace

std::filesystem::path find_checkpoint(const std::filesystem::path& path) {
    const checkpoint::Latest latest = checkpoint::locate_checkpoint(path);
    for (const std::string& reason : latest.skipped)
        fmt::print(stderr, "passed over: {}\n", reason);
    if (*latest.folder != path)
        fmt::print(stderr, "newest whole one: {}\n", latest.folder->string());
    return *latest.folder;
}

int verify(const Command& command) {
    const std::filesystem::path folder = find_checkpoint(command.paths[0]);
    std::int64_t damages = 0;
    std::int64_t bytes = 0;
    {
        ProgressLine line("verify");
        checkpoint::verify_folder(
            folder,
            [&](const std::string& problem) {
                ++damages;
                fmt::print("damage: {}\n", problem);
            },
            [&](std::int64_t done, std::int64_t total) {
                bytes = total;
                line.update(done, total);
            },
            command.threads.value_or(checkpoint::default_threads()));
    }
    if (damages > 0) {
        throw DataError(fmt::format("{} is not whole: {} damage{} found", folder.string(), damages,
                                    damages == 1 ? "" : "s"));
    }
    fmt::print("{} is whole: {} bytes of tensors verified\n", folder.string(), bytes);
    return static_cast<int>(ExitCode::kDone);
}

int consolidate(const Command& command) {
    const std::filesystem::path folder = find_checkpoint(command.paths[0]);
    checkpoint::ConsolidateOptions options = command.consolidate;
    options.overwrite = command.force;
    options.copy = copy_of_slurm();
    checkpoint::Consolidated done;
    {
        ProgressLine line("consolidate");
        options.progress = [&](std::int64_t now, std::int64_t total) { line.update(now, total); };
        done = checkpoint::consolidate(folder, command.out, options);
    }
    if (done.bytes_found > 0) {
        fmt::print(stderr, "{} bytes taken over from an earlier attempt\n", done.bytes_found);
    }
    for (const auto& [parameter, count] : done.overflowed) {
        fmt::print(stderr, "warning: {}: {} values are too large for {} and became infinite\n",
                   parameter, count, name_of(options.dtype));
    }
    const std::string_view what =
        options.selection.with_optimizer ? "weights and moments" : "model weights";
    for (const std::filesystem::path& file : done.files) {
        fmt::print("{}: {} of {}\n", file.string(), what, folder.string());
    }
    for (const std::filesystem::path& file : done.companions) {
        fmt::print("{}: goes with them\n", file.string());
    }
    if (done.companions.size() == 1) {
        fmt::print(stderr, "no tokenizer goes along: --tokenizer DIR names one\n");
    }
    if (!done.complete) fmt::print("other tasks write the rest, and the last one the index\n");
    return static_cast<int>(ExitCode::kDone);
}

int import(const Command& command) {
    const std::filesystem::path& source = command.paths[0];
    std::optional<spec::Architecture> architecture;
    if (command.config) {
        architecture = checkpoint::read_hf_config(*command.config);
    } else {
        architecture = checkpoint::architecture_of(source);
    }
    if (command.show_mapping) {
        if (!architecture) {
            throw UsageError(fmt::format(
                "--show-mapping: nothing says that {} is a GPT-2 or a Llama, so names stay as they "
                "are; --config FILE names its config.json",
                source.string()));
        }
        fmt::print("{}\n", checkpoint::mapping_text(source, *architecture));
    }
    checkpoint::Imported done;
    {
        ProgressLine line("import");
        done = checkpoint::import_weights(
            source, command.out,
            {.overwrite = command.force,
             .architecture = architecture,
             .progress = [&](std::int64_t now, std::int64_t total) { line.update(now, total); }});
    }
    fmt::print("{}: weights of {}{}\n", done.folder.string(), source.string(),
               done.architecture ? "" : ", names as they are");
    for (const std::filesystem::path& file : done.tokenizer) {
        fmt::print("{}: goes with them\n", file.string());
    }
    return static_cast<int>(ExitCode::kDone);
}

}  // namespace fullshard::ckpt
