// From a deck's text and a command line to a checked Deck.
#pragma once

#include "config/deck.h"

#include <span>
#include <string>
#include <string_view>

namespace fullshard::config {

/// The deck's values over the defaults, and the command line's over both; on the command line the
/// last of equal keys wins. Entries of lists are in the order in which they first appear, the
/// command line's new ones last. `deck_name` is what messages call the deck, usually its path;
/// `words` are the `--section.key value` words without program name, subcommand and deck. Pure:
/// rank 0 can read the deck and hand the text to all ranks.
///
/// Throws one UsageError that lists all mistakes, each on a line with origin, key, value, allowed
/// range and remedy: lines and words that are no assignment, unknown keys, keys set twice in the
/// deck, values of the wrong type or out of range, and values that contradict each other.
Deck parse(std::string_view deck_text, std::string_view deck_name,
           std::span<const std::string> words);

}  // namespace fullshard::config
