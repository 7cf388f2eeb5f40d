// Decks and keys as text.
#pragma once

#include "config/deck.h"

#include <string>

namespace fullshard::config {

/// A deck with every key, its value and its origin as a comment. Parsing it gives an equal Deck:
/// reals are printed so that the same bits come back.
std::string effective_deck(const Deck& deck);

/// Every key with type, unit, default, allowed range and meaning, for a terminal.
std::string list_keys();

/// The same as Markdown, with an introduction to decks: the text of inputs/README.md.
std::string keys_markdown();

}  // namespace fullshard::config
