// Shorthands of the config tests.
#pragma once

#include "base/error.h"
#include "config/parser.h"

#include <string>
#include <string_view>
#include <vector>

namespace fullshard::config {

inline Deck parsed(std::string_view deck, const std::vector<std::string>& words = {}) {
    return parse(deck, "t.ini", words);
}

/// The message of the UsageError that parsing throws, or empty.
inline std::string error_of(std::string_view deck, const std::vector<std::string>& words = {}) {
    try {
        parsed(deck, words);
    } catch (const UsageError& error) {
        return error.what();
    }
    return {};
}

inline bool contains(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
}

}  // namespace fullshard::config
