#include "config/compare.h"

#include "config/key_table.h"

namespace fullshard::config {

std::vector<Difference> differences(const Deck& before, const Deck& after) {
    std::vector<Difference> found;
    for (const Section& section : key_table()) {
        for (const Key& key : section.keys) {
            std::string old_text = key.text(before);
            std::string new_text = key.text(after);
            if (old_text != new_text)
                found.push_back({key.name, std::move(old_text), std::move(new_text)});
        }
    }
    return found;
}

}  // namespace fullshard::config
