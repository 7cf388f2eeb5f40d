#include "app/command_line.h"

#include "base/error.h"
#include "config/render.h"
#include "train/versions.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::app {

namespace {

constexpr const char* kHelp =
    R"(FullShard trains transformers with fully sharded parameters, gradients and optimizer state.

usage: fullshard train DECK [--section.key value ...]
       fullshard eval DECK --model.init_from WEIGHTS [--section.key value ...]
       fullshard generate DECK --model.init_from WEIGHTS [--generate.prompt TEXT] [--section.key value ...]
       fullshard train|eval DECK --print-units [--section.key value ...]
       fullshard train DECK --print-world-sizes [--section.key value ...]
       fullshard doctor [DECK] [--section.key value ...]
       fullshard --help | --version | --list-keys | --list-keys=markdown

Start one process a rank, for example
  mpirun -n 4 fullshard train inputs/text.ini --run.dir runs/mine
  srun --mpi=pmix -n 64 fullshard train inputs/text.ini

DECK is an input deck; the same keys on the command line win over it. --list-keys explains every key.
doctor checks whether the ranks of this launch could train the deck, and says what to type.
--print-units shows what the ranks would hold, unit by unit, and ends before anything is allocated.
--print-world-sizes lists the numbers of ranks that can share the deck's global batch, or go on with that of the
checkpoint in run.dir.

exit codes: 0 done, 1 run-time error, 2 wrong use, 3 data, 4 diverged, 5 communication,
            85 stopped on request after a checkpoint: start it again
)";

bool asks_for(std::span<const std::string> words, std::string_view option) {
    return std::ranges::find(words, option) != words.end();
}

}  // namespace

std::optional<std::string> immediate_answer(std::span<const std::string> words) {
    if (asks_for(words, "--help") || asks_for(words, "-h")) return kHelp;
    if (asks_for(words, "--version")) return train::versions_text();
    if (asks_for(words, "--list-keys=markdown")) return config::keys_markdown();
    if (asks_for(words, "--list-keys")) return config::list_keys();
    return std::nullopt;
}

Command parse_command(std::span<const std::string> words) {
    const std::string name = words.empty() ? "" : words[0];
    if (name == "doctor") {
        const bool has_deck = words.size() > 1 && !words[1].starts_with("--");
        return {.name = CommandName::kDoctor,
                .deck = has_deck ? words[1] : "",
                .words = {words.begin() + (has_deck ? 2 : 1), words.end()}};
    }
    const auto command_name = [&] {
        if (name == "train") return CommandName::kTrain;
        if (name == "eval") return CommandName::kEval;
        if (name == "generate") return CommandName::kGenerate;
        throw UsageError(fmt::format(
            "unknown command '{}'; use: fullshard train|eval|generate DECK [--section.key value "
            "...], or fullshard doctor [DECK]",
            name));
    }();
    if (words.size() < 2 || words[1].starts_with("--")) {
        throw UsageError(
            fmt::format("{0} needs a deck: fullshard {0} DECK [--section.key value ...]", name));
    }
    Command command{command_name,
                    words[1],
                    /*print_units=*/false,
                    /*print_world_sizes=*/false,
                    {words.begin() + 2, words.end()}};
    command.print_units = std::erase(command.words, "--print-units") > 0;
    // Elsewhere it is an unknown key: nothing but training divides a global batch.
    command.print_world_sizes =
        command.name == CommandName::kTrain && std::erase(command.words, "--print-world-sizes") > 0;
    return command;
}

}  // namespace fullshard::app
