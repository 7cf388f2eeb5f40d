#include "config/formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace fullshard::config {
namespace {

struct Spelling {
    std::string_view text;
    bool value;
};
constexpr std::array kBooleans{
    Spelling{"on", true},  Spelling{"off", false}, Spelling{"true", true}, Spelling{"false", false},
    Spelling{"yes", true}, Spelling{"no", false},  Spelling{"1", true},    Spelling{"0", false}};

/// The value when `text` as a whole is one, `errc::invalid_argument` when it is not, and
/// `errc::result_out_of_range` when the type cannot hold it.
template <typename Value>
std::errc convert(std::string_view text, Value& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size()) return std::errc::invalid_argument;
    return error;
}

/// "1e3" and "10.0" are whole numbers to a human: the remedy spells them out.
Problem not_an_integer(std::string_view text) {
    constexpr double kExact = 0x1p53;
    double real = 0.0;
    const bool whole =
        convert(text, real) == std::errc() && std::abs(real) <= kExact && std::trunc(real) == real;
    return {"not an integer", whole ? fmt::format("write {:.0f}", real)
                                    : "write decimal digits only, without unit or separator"};
}

template <typename Value>
std::optional<Problem> parse_integer(std::string_view text, Value min, Value max, Value& value) {
    Value parsed{};
    const std::errc error = convert(text, parsed);
    if (error == std::errc::invalid_argument) return not_an_integer(text);
    if (error != std::errc()) return Problem{"out of range", "write a number that fits in 64 bits"};
    if (parsed < min || parsed > max) {
        return Problem{"out of range", fmt::format("the nearest allowed value is {}",
                                                   std::clamp(parsed, min, max))};
    }
    value = parsed;
    return std::nullopt;
}

std::string_view without_blanks(std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Takes `text` apart at its commas and hands the parts to `parse_part`; empty text has none.
template <typename Part, typename ParsePart>
std::optional<Problem> parse_list(std::string_view text, std::vector<Part>& value,
                                  ParsePart parse_part) {
    std::vector<Part> parts;
    bool more = !without_blanks(text).empty();
    while (more) {
        const std::size_t comma = text.find(',');
        const std::string_view part = without_blanks(text.substr(0, comma));
        more = comma != std::string_view::npos;
        text.remove_prefix(more ? comma + 1 : text.size());
        if (part.empty()) {
            return Problem{"nothing before or after a comma",
                           "drop the comma or complete the list"};
        }
        if (part.find_first_of("\"'") != std::string_view::npos) {
            return Problem{"quotes inside a list", "drop them, or quote the list as a whole"};
        }
        if (auto problem = parse_part(part, parts.emplace_back())) return problem;
    }
    value = std::move(parts);
    return std::nullopt;
}

}  // namespace

std::string Integer::allowed() const {
    if (max == std::numeric_limits<std::int64_t>::max()) return fmt::format("x >= {}", min);
    return fmt::format("{} <= x <= {}", min, max);
}

std::string Integer::text(std::int64_t value) const {
    return fmt::format("{}", value);
}

std::optional<Problem> Integer::parse(std::string_view text, std::int64_t& value) const {
    return parse_integer(text, min, max, value);
}

std::string Integers::allowed() const {
    return each.allowed() + ", separated by commas, or empty";
}

std::string Integers::text(const std::vector<std::int64_t>& value) const {
    return fmt::format("{}", fmt::join(value, ", "));
}

std::optional<Problem> Integers::parse(std::string_view text,
                                       std::vector<std::int64_t>& value) const {
    return parse_list(text, value, [this](std::string_view part, std::int64_t& number) {
        auto problem = each.parse(part, number);
        if (problem) problem->what = fmt::format("{} is {}", part, problem->what);
        return problem;
    });
}

std::string Seed::allowed() const {
    return "0 <= x < 2^64";
}

std::string Seed::text(std::uint64_t value) const {
    return fmt::format("{}", value);
}

std::optional<Problem> Seed::parse(std::string_view text, std::uint64_t& value) const {
    std::int64_t negative = 0;
    if (convert(text, negative) == std::errc() && negative < 0) {
        return Problem{"out of range", "the nearest allowed value is 0"};
    }
    return parse_integer(text, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max(), value);
}

std::string Real::allowed() const {
    if (std::isinf(max)) return fmt::format("x {} {}", min_open ? ">" : ">=", min);
    return fmt::format("{} {} x {} {}", min, min_open ? "<" : "<=", max_open ? "<" : "<=", max);
}

std::string Real::text(double value) const {
    return fmt::format("{}", value);
}

std::optional<Problem> Real::parse(std::string_view text, double& value) const {
    double parsed = 0.0;
    const std::errc error = convert(text, parsed);
    if (error == std::errc::invalid_argument || (error == std::errc() && !std::isfinite(parsed))) {
        return Problem{"not a finite number", "write it as 0.001 or 1e-3, without unit"};
    }
    const bool below = min_open ? parsed <= min : parsed < min;
    const bool above = max_open ? parsed >= max : parsed > max;
    if (error != std::errc() || below || above) {
        return Problem{"out of range", "choose a value inside the range"};
    }
    value = parsed;
    return std::nullopt;
}

std::string Boolean::allowed() const {
    return "on, off (also true/false, yes/no, 1/0)";
}

std::string Boolean::text(bool value) const {
    return value ? "on" : "off";
}

std::optional<Problem> Boolean::parse(std::string_view text, bool& value) const {
    const auto* found = std::ranges::find(kBooleans, text, &Spelling::text);
    if (found == kBooleans.end()) return Problem{"not a boolean", "write on or off"};
    value = found->value;
    return std::nullopt;
}

std::string Path::allowed() const {
    return may_be_empty ? "a path, or empty" : "a path";
}

std::string Path::text(const std::filesystem::path& value) const {
    return value.string();
}

std::optional<Problem> Path::parse(std::string_view text, std::filesystem::path& value) const {
    if (text.empty() && !may_be_empty) return Problem{"is empty", "name a file or folder"};
    const bool unwritable = std::ranges::any_of(
        text, [](char c) { return c == '#' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (unwritable) {
        return Problem{"has a '#' or a control character, which no deck can hold",
                       "rename the file or reach it through a link"};
    }
    value = std::filesystem::path(text);
    return std::nullopt;
}

std::string PowerOfTwo::allowed() const {
    return fmt::format("a power of two, 2^{} <= x <= 2^{}{}", std::ilogb(kMin), std::ilogb(kMax),
                       zero_too ? ", or 0" : "");
}

std::string PowerOfTwo::text(double value) const {
    return Real{}.text(value);
}

std::optional<Problem> PowerOfTwo::parse(std::string_view text, double& value) const {
    double parsed = 0.0;
    if (auto problem = Real{}.parse(text, parsed)) return problem;
    if (parsed == 0.0 && zero_too) {
        value = parsed;
        return std::nullopt;
    }
    if (parsed < kMin || parsed > kMax) {
        return Problem{"out of range", fmt::format("the nearest allowed value is {}",
                                                   std::clamp(parsed, kMin, kMax))};
    }
    int exponent = 0;
    if (std::frexp(parsed, &exponent) != 0.5) {  // frexp: parsed = fraction * 2^exponent
        return Problem{
            "not a power of two",
            fmt::format("write {} or {}", std::ldexp(0.5, exponent), std::ldexp(1.0, exponent))};
    }
    value = parsed;
    return std::nullopt;
}

std::string RealOrAuto::allowed() const {
    return real.allowed() + ", or auto";
}

std::string RealOrAuto::text(const std::optional<double>& value) const {
    return value ? real.text(*value) : "auto";
}

std::optional<Problem> RealOrAuto::parse(std::string_view text,
                                         std::optional<double>& value) const {
    if (text == "auto") {
        value.reset();
        return std::nullopt;
    }
    double parsed = 0.0;
    if (auto problem = real.parse(text, parsed)) return problem;
    value = parsed;
    return std::nullopt;
}

std::string Resharding::allowed() const {
    return "auto, on, off, or N >= 2 ranks";
}

std::string Resharding::text(const ReshardAfterForward& value) const {
    switch (value.kind) {
        case ReshardAfterForward::Kind::kYes:
            return "on";
        case ReshardAfterForward::Kind::kNo:
            return "off";
        case ReshardAfterForward::Kind::kGroup:
            return fmt::format("{}", value.group);
        case ReshardAfterForward::Kind::kAuto:
            break;
    }
    return "auto";
}

std::optional<Problem> Resharding::parse(std::string_view text, ReshardAfterForward& value) const {
    if (text == "auto") {
        value = {};
        return std::nullopt;
    }
    std::int64_t group = 0;
    if (convert(text, group) == std::errc()) {
        if (group < 2) {
            return Problem{"no group that parameters could be split over",
                           "write off to keep them whole, on to give them up"};
        }
        value = {ReshardAfterForward::Kind::kGroup, group};
        return std::nullopt;
    }
    bool reshard = false;
    if (Boolean{}.parse(text, reshard)) {
        return Problem{"neither a boolean nor a number of ranks",
                       "write auto, on, off, or a whole number of 2 or more"};
    }
    value = {reshard ? ReshardAfterForward::Kind::kYes : ReshardAfterForward::Kind::kNo};
    return std::nullopt;
}

std::string Paths::allowed() const {
    return "paths without commas, separated by commas, or empty";
}

std::string Paths::text(const std::vector<std::filesystem::path>& value) const {
    std::vector<std::string> names;
    for (const std::filesystem::path& path : value) names.push_back(path.string());
    return join_names(names);
}

std::optional<Problem> Paths::parse(std::string_view text,
                                    std::vector<std::filesystem::path>& value) const {
    return parse_list(text, value, [](std::string_view part, std::filesystem::path& path) {
        return Path{}.parse(part, path);
    });
}

std::string Text::allowed() const {
    return "any text; \\n, \\t, \\\\ and \\xHH as in C";
}

std::string Text::text(const std::string& value) const {
    std::string result;
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\n') {
            result += "\\n";
        } else if (c == '\t') {
            result += "\\t";
        } else if (c == '\\') {
            result += "\\\\";
        } else if (byte < 0x20 || byte == 0x7f || c == '#') {
            result += fmt::format("\\x{:02x}", byte);
        } else {
            result += c;
        }
    }
    return result;
}

std::optional<Problem> Text::parse(std::string_view text, std::string& value) const {
    std::string result;
    while (!text.empty()) {
        if (text.front() != '\\') {
            result += text.front();
            text.remove_prefix(1);
            continue;
        }
        const char kind = text.size() > 1 ? text[1] : '\0';
        unsigned byte = 0;
        std::size_t length = 2;
        if (kind == 'n' || kind == 't' || kind == '\\') {
            byte = kind == 'n' ? '\n' : kind == 't' ? '\t' : '\\';
        } else if (const std::string_view digits =
                       text.substr(std::min<std::size_t>(2, text.size()), 2);
                   kind == 'x' && digits.size() == 2 &&
                   std::from_chars(digits.data(), digits.data() + 2, byte, 16).ptr ==
                       digits.data() + 2) {
            length = 4;
        } else {
            return Problem{fmt::format("has '{}', which stands for nothing", text.substr(0, 2)),
                           "write \\\\ for a backslash"};
        }
        result += static_cast<char>(byte);
        text.remove_prefix(length);
    }
    value = std::move(result);
    return std::nullopt;
}

std::string Patterns::allowed() const {
    return "names with * and ?, separated by commas";
}

std::string Patterns::text(const std::vector<std::string>& value) const {
    return join_names(value);
}

std::optional<Problem> Patterns::parse(std::string_view text,
                                       std::vector<std::string>& value) const {
    const auto parse_pattern = [](std::string_view part,
                                  std::string& pattern) -> std::optional<Problem> {
        // What a deck could not hold, or no parameter is called.
        const bool foreign = std::ranges::any_of(
            part, [](unsigned char c) { return c <= 0x20 || c == 0x7f || c == '#'; });
        if (foreign) {
            return Problem{"has a blank, a '#' or a control character inside a name",
                           "separate names by commas"};
        }
        pattern = part;
        return std::nullopt;
    };
    return parse_list(text, value, parse_pattern);
}

Problem not_a_choice(std::string_view text, const std::vector<std::string>& names) {
    const std::string guess = nearest(text, names);
    return {"not a choice", guess.empty() ? "write one of the allowed words"
                                          : fmt::format("did you mean {}?", guess)};
}

std::string join_names(const std::vector<std::string>& names) {
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace fullshard::config
