#include "config/parser.h"

#include "base/error.h"
#include "config/checks.h"
#include "config/key_table.h"
#include "config/nearest.h"
#include "config/tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace fullshard::config {
namespace {

std::string remedy_for_unknown_key(std::string_view name) {
    const std::string guess = nearest_key(name, key_names());
    if (!guess.empty()) return fmt::format("did you mean {}?", guess);
    const std::string_view section_name = name.substr(0, name.find('.'));
    std::vector<std::string_view> sections;
    for (const Section& section : key_table()) {
        sections.push_back(section.name);
        if (section.name != section_name) continue;
        std::vector<std::string_view> keys;
        for (const Key& key : section.keys) {
            keys.push_back(std::string_view(key.name).substr(section.name.size() + 1));
        }
        return fmt::format("[{}] has {}", section.name, fmt::join(keys, ", "));
    }
    return fmt::format("sections are {}", fmt::join(sections, ", "));
}

/// Applies assignments to a deck and collects what is wrong with them.
class Builder {
  public:
    void report(std::vector<Mistake> mistakes) {
        for (Mistake& mistake : mistakes) mistakes_.push_back(std::move(mistake));
    }

    void apply(const Assignment& assignment) {
        const auto& [name, value, origin, line] = assignment;
        const std::string shown = fmt::format("{} = {}", name, value);
        const Key* key = find_key(name);
        if (key == nullptr) {
            mistakes_.push_back({origin, shown, "unknown key", remedy_for_unknown_key(name), line});
            return;
        }
        if (const auto problem = key->assign(deck_, value)) {
            mistakes_.push_back(
                {origin, shown,
                 fmt::format("{} ({}; allowed: {})", problem->what, key->type, key->allowed),
                 problem->remedy, line});
            doubtful_.insert(name);
            return;
        }
        deck_.origins[name] = origin;
    }

    void report_repetition(const Assignment& assignment, const std::string& first_origin) {
        mistakes_.push_back({assignment.origin,
                             fmt::format("{} = {}", assignment.key, assignment.value),
                             "set twice in this deck",
                             fmt::format("keep this line or {}", first_origin), assignment.line});
    }

    void sort_by_line() { std::ranges::stable_sort(mistakes_, {}, &Mistake::line); }

    /// Contradictions are judged only between keys whose values were understood.
    Deck finish() {
        for (const Contradiction& contradiction : contradictions(deck_)) {
            const auto& keys = contradiction.keys;
            const bool doubtful =
                std::ranges::any_of(keys, [&](auto name) { return doubtful_.contains(name); });
            if (!doubtful) report(contradiction);
        }
        if (!mistakes_.empty()) fail();
        return std::move(deck_);
    }

  private:
    void report(const Contradiction& contradiction) {
        std::vector<std::string> values;
        for (const std::string_view name : contradiction.keys) {
            const std::string value = find_key(name)->text(deck_);
            values.push_back(fmt::format("{} = {} ({})", name, value.empty() ? "nothing" : value,
                                         origin_of(deck_, name)));
        }
        mistakes_.push_back({"contradiction", fmt::format("{}", fmt::join(values, ", ")),
                             contradiction.what, contradiction.remedy});
    }

    [[noreturn]] void fail() const {
        std::string message = mistakes_.size() == 1
                                  ? "one mistake in the input:\n"
                                  : fmt::format("{} mistakes in the input:\n", mistakes_.size());
        for (const Mistake& mistake : mistakes_) {
            message += fmt::format("  {}: {}: {}; {}\n", mistake.origin, mistake.text, mistake.what,
                                   mistake.remedy);
        }
        throw UsageError(message +
                         "fullshard --list-keys prints every key with type, range and meaning");
    }

    Deck deck_;
    std::vector<Mistake> mistakes_;
    std::set<std::string, std::less<>> doubtful_;  // known keys whose value was refused
};

}  // namespace

Deck parse(std::string_view deck_text, std::string_view deck_name,
           std::span<const std::string> words) {
    Builder builder;
    Tokens deck = tokenize_deck(deck_text, deck_name);
    builder.report(std::move(deck.mistakes));
    std::map<std::string, std::string> first_origins;
    for (const Assignment& assignment : deck.assignments) {
        const auto [first, is_new] = first_origins.emplace(assignment.key, assignment.origin);
        if (is_new) {
            builder.apply(assignment);
        } else {
            builder.report_repetition(assignment, first->second);
        }
    }
    builder.sort_by_line();
    Tokens command_line = tokenize_command_line(words);
    builder.report(std::move(command_line.mistakes));
    for (const Assignment& assignment : command_line.assignments) builder.apply(assignment);
    return builder.finish();
}

}  // namespace fullshard::config
