#include "config/nearest.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace fullshard::config {
namespace {

std::string closest(std::string_view word, std::span<const std::string> candidates,
                    const std::function<std::size_t(std::string_view)>& distance) {
    std::size_t best = std::max<std::size_t>(1, word.size() / 4) + 1;
    std::string result;
    for (const std::string& candidate : candidates) {
        const std::size_t d = distance(candidate);
        if (d >= best) continue;
        best = d;
        result = candidate;
    }
    return result;
}

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
    return closest(word, candidates,
                   [&](std::string_view candidate) { return edit_distance(word, candidate); });
}

std::string nearest_key(std::string_view word, std::span<const std::string> keys) {
    return closest(word, keys, [&](std::string_view key) {
        const std::size_t whole = edit_distance(word, key);
        const bool same_name = without_section(word) == without_section(key);
        return same_name ? std::min<std::size_t>(whole, 1) : whole;
    });
}

}  // namespace fullshard::config
