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

/// Keys whose values differ, in the order of the documentation, with their values as text.
std::vector<Difference> differences(const Deck& before, const Deck& after);

}  // namespace fullshard::config
