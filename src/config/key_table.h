// The one table of all keys. Parsing, checks of types and ranges, the effective deck and the
// documentation all read it; nothing else names a key's type, unit, range or meaning.
#pragma once

#include "config/deck.h"
#include "config/formats.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::config {

struct Key {
    std::string name;     ///< "section.key"
    std::string type;     ///< integer, real, boolean, choice or path
    std::string unit;     ///< empty for a pure number
    std::string allowed;  ///< range or choices
    std::string meaning;
    /// The key's value in a deck, as parse would read it.
    std::function<std::string(const Deck&)> text;
    /// Sets the key's member, or leaves it alone and tells why.
    std::function<std::optional<Problem>(Deck&, std::string_view)> assign;
};

struct Section {
    std::string name;
    std::string meaning;
    std::vector<Key> keys;
};

/// All sections and keys, in the order in which they are printed.
const std::vector<Section>& key_table();

/// The key of that full name, or null.
const Key* find_key(std::string_view name);

/// Full names of all keys.
std::vector<std::string> key_names();

/// The value that `key` has when nothing sets it.
std::string default_text(const Key& key);

}  // namespace fullshard::config
