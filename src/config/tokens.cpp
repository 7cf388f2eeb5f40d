#include "config/tokens.h"

#include "base/error.h"

#include <boost/program_options/cmdline.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

namespace fullshard::config {
namespace {

namespace po = boost::program_options;

constexpr const char* kCommandLine = "command line";
constexpr const char* kCommandLineForms = "write --section.key value or --section.key=value";

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

/// What a comment of the effective deck can hold, whatever the deck's file is called.
std::string printable(std::string_view name) {
    std::string result(name);
    std::ranges::replace_if(
        result, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    return result;
}

/// The lines that Boost can take: it reports neither line numbers nor more than the first malformed
/// line, so both are found here, by its own rules for comments, sections and assignments.
struct DeckLines {
    std::string accepted;                  ///< section headers and assignments
    std::vector<std::int64_t> assignment;  ///< line number of each assignment in `accepted`
    std::vector<Mistake> mistakes;
};

DeckLines classify(std::string_view text, std::string_view name) {
    DeckLines lines;
    std::int64_t number = 0;
    while (!text.empty()) {
        ++number;
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = trimmed(text.substr(0, std::min(end, text.find('#'))));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty()) continue;
        const bool header = line.front() == '[' && line.back() == ']' && line.size() > 2;
        const std::size_t equals = line.find('=');
        if (header || (line.front() != '[' && equals != std::string_view::npos && equals > 0)) {
            if (!header) lines.assignment.push_back(number);
            lines.accepted.append(line).push_back('\n');
        } else {
            lines.mistakes.push_back({fmt::format("{}:{}", name, number), std::string(line),
                                      "neither [section] nor key = value",
                                      "complete the line, or start it with # to make it a comment",
                                      number});
        }
    }
    return lines;
}

/// Drops a pair of quotes around the whole value; nothing when only one end has a quote.
std::optional<std::string> without_quotes(const std::string& value) {
    const auto is_quote = [](char c) { return c == '"' || c == '\''; };
    if (value.empty() || (!is_quote(value.front()) && !is_quote(value.back()))) return value;
    if (value.size() < 2 || value.front() != value.back()) return std::nullopt;
    return value.substr(1, value.size() - 2);
}

}  // namespace

Tokens tokenize_deck(std::string_view text, std::string_view name) {
    const std::string deck = printable(name);
    DeckLines lines = classify(text, deck);
    Tokens tokens{{}, std::move(lines.mistakes)};
    std::istringstream stream(lines.accepted);
    const po::options_description nothing_registered;
    const auto parsed = po::parse_config_file(stream, nothing_registered, true);
    ensure(parsed.options.size() == lines.assignment.size(), "every assignment is one option");
    for (std::size_t i = 0; i < parsed.options.size(); ++i) {
        const auto& option = parsed.options[i];
        const std::int64_t line = lines.assignment[i];
        const std::string origin = fmt::format("{}:{}", deck, line);
        const auto value = without_quotes(option.value.front());
        if (value) {
            tokens.assignments.push_back({option.string_key, *value, origin, line});
        } else {
            tokens.mistakes.push_back(
                {origin, fmt::format("{} = {}", option.string_key, option.value.front()),
                 "only one end of the value is quoted",
                 "close the quotes or drop them; # starts a comment even between quotes", line});
        }
    }
    return tokens;
}

Tokens tokenize_command_line(std::span<const std::string> words) {
    Tokens tokens;
    const std::string origin = kCommandLine;
    std::vector<std::string> accepted;
    for (const std::string& word : words) {
        // Boost throws on these two, and only on the first of them.
        const bool long_option = word.starts_with("--") && word.size() > 2;
        const std::size_t equals = word.find('=');
        if (long_option && (equals == 2 || equals == word.size() - 1)) {
            tokens.mistakes.push_back(
                {origin, word, equals == 2 ? "no key" : "no value", kCommandLineForms});
        } else {
            accepted.push_back(word);
        }
    }
    // Nothing is registered, so Boost guesses nothing and every option arrives here; it cannot know
    // that a word behind `--section.key` is that key's value.
    const po::options_description nothing_registered;
    const auto parsed = po::command_line_parser(accepted)
                            .options(nothing_registered)
                            .style(po::command_line_style::allow_long |
                                   po::command_line_style::long_allow_adjacent |
                                   po::command_line_style::long_allow_next)
                            .allow_unregistered()
                            .run();
    std::optional<std::string> waiting;  // a key that still needs its value
    const auto report_missing_value = [&] {
        if (!waiting) return;
        tokens.mistakes.push_back(
            {origin, "--" + *waiting, "no value", fmt::format("write --{} value", *waiting)});
        waiting.reset();
    };
    for (const auto& option : parsed.options) {
        if (!option.string_key.empty()) {
            report_missing_value();
            if (option.value.empty()) {
                waiting = option.string_key;
            } else {
                tokens.assignments.push_back({option.string_key, option.value.front(), origin});
            }
        } else if (waiting) {
            tokens.assignments.push_back({*waiting, option.value.front(), origin});
            waiting.reset();
        } else {
            tokens.mistakes.push_back(
                {origin, option.value.front(), "belongs to no key", kCommandLineForms});
        }
    }
    report_missing_value();
    return tokens;
}

}  // namespace fullshard::config
