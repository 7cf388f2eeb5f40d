// How values are written in a deck: one format per type of key, with text -> value and value ->
// text. `parse` takes the whole text or reports a problem; it never accepts a part of it.
#pragma once

#include "config/deck.h"
#include "config/nearest.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fullshard::config {

/// Why a value was refused, and what to do about it.
struct Problem {
    std::string what;
    std::string remedy;
};

/// Whole numbers in [min, max].
struct Integer {
    std::int64_t min = 0;
    std::int64_t max = std::numeric_limits<std::int64_t>::max();

    static constexpr std::string_view kType = "integer";
    std::string allowed() const;
    std::string text(std::int64_t value) const;
    std::optional<Problem> parse(std::string_view text, std::int64_t& value) const;
};

/// Whole numbers in [min, max], separated by commas.
struct Integers {
    Integer each;

    static constexpr std::string_view kType = "integers";
    std::string allowed() const;
    std::string text(const std::vector<std::int64_t>& value) const;
    std::optional<Problem> parse(std::string_view text, std::vector<std::int64_t>& value) const;
};

/// 64 bits that seed random streams.
struct Seed {
    static constexpr std::string_view kType = "integer";
    std::string allowed() const;
    std::string text(std::uint64_t value) const;
    std::optional<Problem> parse(std::string_view text, std::uint64_t& value) const;
};

/// Finite reals between the bounds; an open bound is itself excluded.
struct Real {
    double min = 0.0;
    double max = std::numeric_limits<double>::infinity();
    bool min_open = false;
    bool max_open = false;

    static constexpr std::string_view kType = "real";
    std::string allowed() const;
    /// The shortest text that gives back the same bits.
    std::string text(double value) const;
    std::optional<Problem> parse(std::string_view text, double& value) const;
};

struct Boolean {
    static constexpr std::string_view kType = "boolean";
    std::string allowed() const;
    std::string text(bool value) const;
    std::optional<Problem> parse(std::string_view text, bool& value) const;
};

/// A file or folder. No '#' and no control characters: a deck could not hold them.
struct Path {
    bool may_be_empty = false;

    static constexpr std::string_view kType = "path";
    std::string allowed() const;
    std::string text(const std::filesystem::path& value) const;
    std::optional<Problem> parse(std::string_view text, std::filesystem::path& value) const;
};

/// Text that a model reads. \n, \t, \\ and \xHH stand for a line break, a tab, a backslash and the
/// byte HH; a deck needs \x23 for '#'.
struct Text {
    static constexpr std::string_view kType = "text";
    std::string allowed() const;
    std::string text(const std::string& value) const;
    std::optional<Problem> parse(std::string_view text, std::string& value) const;
};

/// 2^n, which scales a float without rounding it. The bounds keep products with losses far inside
/// the range of fp32.
struct PowerOfTwo {
    bool zero_too = false;

    static constexpr double kMin = 0x1p-24;
    static constexpr double kMax = 0x1p32;
    static constexpr std::string_view kType = "real";
    std::string allowed() const;
    std::string text(double value) const;
    std::optional<Problem> parse(std::string_view text, double& value) const;
};

/// A real, or the word "auto" for none.
struct RealOrAuto {
    Real real;

    static constexpr std::string_view kType = "real";
    std::string allowed() const;
    std::string text(const std::optional<double>& value) const;
    std::optional<Problem> parse(std::string_view text, std::optional<double>& value) const;
};

/// auto, on, off, or a number of ranks. 0 and 1 are refused, where other booleans take them.
struct Resharding {
    static constexpr std::string_view kType = "choice";
    std::string allowed() const;
    std::string text(const ReshardAfterForward& value) const;
    std::optional<Problem> parse(std::string_view text, ReshardAfterForward& value) const;
};

/// Files, separated by commas.
struct Paths {
    static constexpr std::string_view kType = "paths";
    std::string allowed() const;
    std::string text(const std::vector<std::filesystem::path>& value) const;
    std::optional<Problem> parse(std::string_view text,
                                 std::vector<std::filesystem::path>& value) const;
};

/// Patterns of parameter names, separated by commas.
struct Patterns {
    static constexpr std::string_view kType = "patterns";
    std::string allowed() const;
    std::string text(const std::vector<std::string>& value) const;
    std::optional<Problem> parse(std::string_view text, std::vector<std::string>& value) const;
};

/// The problem of `text` being none of `names`, with the nearest of them as remedy.
Problem not_a_choice(std::string_view text, const std::vector<std::string>& names);
std::string join_names(const std::vector<std::string>& names);

/// One of the named values of an enumeration.
template <typename Enum>
struct Choice {
    std::vector<std::pair<std::string, Enum>> choices;

    static constexpr std::string_view kType = "choice";

    std::vector<std::string> names() const {
        std::vector<std::string> result;
        for (const auto& choice : choices) result.push_back(choice.first);
        return result;
    }
    std::string allowed() const { return join_names(names()); }
    std::string text(Enum value) const {
        for (const auto& [name, choice] : choices) {
            if (choice == value) return name;
        }
        return {};
    }
    std::optional<Problem> parse(std::string_view text, Enum& value) const {
        for (const auto& [name, choice] : choices) {
            if (name != text) continue;
            value = choice;
            return std::nullopt;
        }
        return not_a_choice(text, names());
    }
};

}  // namespace fullshard::config
