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
    std::string name;     ///< "section.key", "list.NAME.key" in a list
    std::string type;     ///< integer, integers, real, boolean, choice, path, paths or patterns
    std::string unit;     ///< empty for a pure number
    std::string allowed;  ///< range or choices
    std::string meaning;
    /// The key's value in a deck, as parse would read it.
    std::function<std::string(const Deck&)> text;
    /// Sets the key's member, or leaves it alone and tells why.
    std::function<std::optional<Problem>(Deck&, std::string_view)> assign;
};

/// What stands for an entry's name in the documentation of a list.
inline constexpr std::string_view kEntryPlaceholder = "NAME";

/// A section, or a list: sections of equal keys that a deck has any number of, each an entry with a
/// name of the user's choice.
struct Section {
    std::string name;  ///< "optimizer"; of a list "optimizer.group.NAME"
    std::string meaning;
    std::vector<Key> keys;  ///< of a list: those of an entry called NAME
    /// Lists only: the names of a deck's entries, in order.
    std::function<std::vector<std::string>(const Deck&)> entries = nullptr;
    /// Lists only: the keys of the entry of that name, whether or not a deck has it.
    std::function<std::vector<Key>(std::string_view entry)> keys_of = nullptr;

    bool is_list() const { return entries != nullptr; }
    /// Lists only: what precedes an entry's name, "optimizer.group.".
    std::string_view prefix() const;
};

/// All sections, lists and keys, in the order in which they are printed.
const std::vector<Section>& key_table();

/// The sections that a deck has: each list is replaced by a section for each of its entries.
std::vector<Section> sections_of(const Deck& deck);

/// The list that a key of this name could only belong to, or null.
const Section* find_list(std::string_view key_name);

/// Whether a list's entry may be called so: letters, digits, '_' and '-', at least one.
bool is_entry_name(std::string_view name);

/// The key of that full name, of any entry that a list could have.
std::optional<Key> find_key(std::string_view name);

/// Full names of all keys, with `entry` as the name of the lists' entries.
std::vector<std::string> key_names(std::string_view entry = kEntryPlaceholder);

/// The value that `key` has when nothing sets it.
std::string default_text(const Key& key);

}  // namespace fullshard::config
