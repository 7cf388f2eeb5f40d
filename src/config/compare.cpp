#include "config/compare.h"

#include "config/key_table.h"

#include <algorithm>

namespace fullshard::config {
namespace {

/// Entries of either deck, each once.
std::vector<std::string> united(std::vector<std::string> names,
                                const std::vector<std::string>& others) {
    for (const std::string& other : others) {
        if (std::ranges::find(names, other) == names.end()) names.push_back(other);
    }
    return names;
}

}  // namespace

std::vector<Difference> differences(const Deck& before, const Deck& after) {
    std::vector<Difference> found;
    const auto compare = [&](const std::string& name, const std::string& old_text,
                             const std::string& new_text) {
        const auto shown = [](const std::string& text) { return text.empty() ? "nothing" : text; };
        if (old_text != new_text) found.push_back({name, shown(old_text), shown(new_text)});
    };
    const auto compare_keys = [&](const std::vector<Key>& keys) {
        for (const Key& key : keys) compare(key.name, key.text(before), key.text(after));
    };
    for (const Section& section : key_table()) {
        if (!section.is_list()) {
            compare_keys(section.keys);
            continue;
        }
        const std::vector<std::string> old_entries = section.entries(before);
        const std::vector<std::string> new_entries = section.entries(after);
        const std::string_view list = section.prefix().substr(0, section.prefix().size() - 1);
        compare(std::string(list), join_names(old_entries), join_names(new_entries));
        for (const std::string& entry : united(old_entries, new_entries)) {
            compare_keys(section.keys_of(entry));
        }
    }
    return found;
}

}  // namespace fullshard::config
