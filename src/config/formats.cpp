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

Problem not_a_choice(std::string_view text, const std::vector<std::string>& names) {
    const std::string guess = nearest(text, names);
    return {"not a choice", guess.empty() ? "write one of the allowed words"
                                          : fmt::format("did you mean {}?", guess)};
}

std::string join_names(const std::vector<std::string>& names) {
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace fullshard::config
