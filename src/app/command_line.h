// The words behind the program's name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::app {

enum class CommandName : std::uint8_t { kTrain, kEval, kGenerate, kDoctor };

/// `fullshard train|eval|generate DECK [--print-units | --print-world-sizes] [--section.key value
/// ...]`, or `fullshard doctor [DECK] [--section.key value ...]`
struct Command {
    CommandName name = CommandName::kTrain;
    std::string deck;                ///< empty where there is none, for the doctor
    bool print_units = false;        ///< show the units of the run and end
    bool print_world_sizes = false;  ///< show on how many ranks it can run, and end
    std::vector<std::string> words;  ///< what follows the deck: keys and values
};

/// Answers --help, --version, --list-keys and --list-keys=markdown, which need neither MPI nor a
/// deck: the text to print, or nothing when the words ask for something else.
std::optional<std::string> immediate_answer(std::span<const std::string> words);

/// Throws UsageError when the words are no known command.
Command parse_command(std::span<const std::string> words);

}  // namespace fullshard::app
