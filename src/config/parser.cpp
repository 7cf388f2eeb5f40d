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
#include <optional>
#include <set>
#include <vector>

namespace fullshard::config {
namespace {

/// Names without their section.
std::vector<std::string> short_names(const std::vector<Key>& keys) {
    std::vector<std::string> names;
    for (const Key& key : keys) names.push_back(key.name.substr(key.name.rfind('.') + 1));
    return names;
}

std::string remedy_in_list(const Section& list, std::string_view name) {
    const std::size_t dot = name.rfind('.');
    const std::size_t begin = list.prefix().size();
    if (dot < begin) {
        return fmt::format("write {}.KEY with a name of your choice for {}", list.name,
                           kEntryPlaceholder);
    }
    const std::string_view entry = name.substr(begin, dot - begin);
    if (!is_entry_name(entry)) {
        return fmt::format("use letters, digits, '_' and '-' for {} in {}", kEntryPlaceholder,
                           list.name);
    }
    const std::string_view section = name.substr(0, dot);
    const std::vector<std::string> names = short_names(list.keys);
    const std::string guess = nearest(name.substr(dot + 1), names);
    if (!guess.empty()) return fmt::format("did you mean {}.{}?", section, guess);
    return fmt::format("[{}] has {}", section, fmt::join(names, ", "));
}

/// What the user of a mistyped list (`optimizer.gruop.head.lr`) meant as its entry's name.
std::string_view likely_entry(std::string_view name) {
    const auto depth = [](std::string_view text) { return std::ranges::count(text, '.'); };
    const bool deep_enough = std::ranges::any_of(key_table(), [&](const Section& section) {
        return section.is_list() && depth(section.keys.front().name) == depth(name);
    });
    const std::string_view section = name.substr(0, name.rfind('.'));
    const std::string_view entry = section.substr(section.rfind('.') + 1);
    return deep_enough && is_entry_name(entry) ? entry : kEntryPlaceholder;
}

std::string remedy_for_unknown_key(std::string_view name) {
    if (const Section* list = find_list(name)) return remedy_in_list(*list, name);
    const std::string guess = nearest_key(name, key_names(likely_entry(name)));
    if (!guess.empty()) return fmt::format("did you mean {}?", guess);
    const std::string_view section_name = name.substr(0, name.find('.'));
    std::vector<std::string_view> sections;
    for (const Section& section : key_table()) {
        sections.push_back(section.name);
        if (section.name != section_name) continue;
        return fmt::format("[{}] has {}", section.name, fmt::join(short_names(section.keys), ", "));
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
        const std::optional<Key> key = find_key(name);
        if (!key) {
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
            const bool doubtful = std::ranges::any_of(
                keys, [&](const auto& name) { return doubtful_.contains(name); });
            if (!doubtful) report(contradiction);
        }
        if (!mistakes_.empty()) fail();
        return std::move(deck_);
    }

  private:
    void report(const Contradiction& contradiction) {
        std::vector<std::string> values;
        for (const std::string& name : contradiction.keys) {
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
