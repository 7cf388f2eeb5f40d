// Two decks side by side.
#pragma once

#include "config/deck.h"

#include <string>
#include <vector>

namespace fullshard::config {

struct Difference {
    std::string key;
    std::string before;
    std::string after;
};

/// Keys whose values differ, in the order of the documentation, with their values as text, an empty
/// one as "nothing". A list whose entries differ in number, name or order comes before its entries'
/// keys: `optimizer.group` with the names as values. An entry that one deck lacks compares as
/// one at defaults.
std::vector<Difference> differences(const Deck& before, const Deck& after);

}  // namespace fullshard::config
