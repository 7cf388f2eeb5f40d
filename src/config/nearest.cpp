#include "config/nearest.h"

#include <algorithm>
#include <vector>

namespace fullshard::config {
namespace {

std::string_view without_section(std::string_view key) {
    return key.substr(key.rfind('.') + 1);  // npos + 1 is 0
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
    // Rows of the classic table: distances of prefixes of `a` of length i-2, i-1 and i.
    std::vector<std::size_t> before_previous(b.size() + 1), previous(b.size() + 1),
        current(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) current[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        before_previous.swap(previous);
        previous.swap(current);
        current[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            current[j] = std::min({previous[j] + 1, current[j - 1] + 1, substitution});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                current[j] = std::min(current[j], before_previous[j - 2] + 1);
            }
        }
    }
    return current[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
    std::size_t best = std::max<std::size_t>(1, word.size() / 4) + 1;
    std::string result;
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(word, candidate);
        if (distance >= best) continue;
        best = distance;
        result = candidate;
    }
    return result;
}

std::string nearest_key(std::string_view word, std::span<const std::string> keys) {
    std::string whole = nearest(word, keys);
    if (!whole.empty()) return whole;
    const auto same_name = std::ranges::find(
        keys, without_section(word), [](const std::string& key) { return without_section(key); });
    return same_name == keys.end() ? std::string() : *same_name;
}

}  // namespace fullshard::config
