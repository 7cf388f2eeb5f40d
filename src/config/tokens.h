// Text of a deck and words of a command line, cut into keys and values by Boost.Program_options.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::config {

/// One `key = value` as the user wrote it.
struct Assignment {
    std::string key;
    std::string value;
    std::string origin;     ///< "text.ini:12" or "command line"
    std::int64_t line = 0;  ///< of the deck, from 1; 0 on the command line
};

/// A line or word that is not an assignment, or an assignment whose value cannot be taken.
struct Mistake {
    std::string origin;
    std::string text;  ///< the line, the word, or "key = value"
    std::string what;
    std::string remedy;
    std::int64_t line = 0;  ///< as in Assignment
};

struct Tokens {
    std::vector<Assignment> assignments;  ///< in the order in which they were written
    std::vector<Mistake> mistakes;
};

/// An INI text: `[section]` lines, `key = value` lines (the key may also be written in full), `#`
/// starts a comment anywhere in a line, also between quotes. A value may stand in a pair of single
/// or double quotes, which are dropped and keep spaces at its ends. `name` is what origins call the
/// deck.
Tokens tokenize_deck(std::string_view text, std::string_view name);

/// `--section.key value` and `--section.key=value`; values may start with '-' but, in the first
/// form, not with "--". There are no abbreviations, no short options and no quotes.
Tokens tokenize_command_line(std::span<const std::string> words);

}  // namespace fullshard::config
