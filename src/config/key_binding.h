// How the sections of the key table are built; only key_table.cpp and the sections_*.cpp use it.
#pragma once

#include "config/key_table.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fullshard::config {

// Upper bounds keep products of sizes (parameters, tokens, bytes of a step) far below 2^63.
inline constexpr std::int64_t kMaxWidth = 1'000'000;
inline constexpr std::int64_t kMaxVocabulary = 100'000'000;
inline constexpr std::int64_t kMaxLayers = 100'000;
inline constexpr std::int64_t kMaxSequence = 100'000'000;
inline constexpr std::int64_t kMaxBatch = 1'000'000;
inline constexpr std::int64_t kMaxRanks = 1'000'000;
inline constexpr std::int64_t kMaxCount = 1'000'000'000'000;  // steps, sequences

/// Binds a key to the member of its section that holds it.
template <typename SectionStruct, typename Value, typename Format>
Key key(std::string name, SectionStruct Deck::*section, Value SectionStruct::*member, Format format,
        std::string unit, std::string meaning) {
    return {
        .name = std::move(name),
        .type = std::string(Format::kType),
        .unit = std::move(unit),
        .allowed = format.allowed(),
        .meaning = std::move(meaning),
        .text = [=](const Deck& deck) { return format.text(deck.*section.*member); },
        .assign = [=](Deck& deck,
                      std::string_view text) { return format.parse(text, deck.*section.*member); }};
}

/// The entry of that name, or null.
template <typename Entry>
const Entry* find_entry(const std::vector<Entry>& entries, std::string_view name) {
    const auto found = std::ranges::find(entries, name, &Entry::name);
    return found == entries.end() ? nullptr : &*found;
}

template <typename Entry>
std::vector<std::string> names_of(const std::vector<Entry>& entries) {
    std::vector<std::string> names;
    for (const Entry& entry : entries) names.push_back(entry.name);
    return names;
}

/// Binds a key of a list's section to the member of the entry called `entry`. Where a deck has no
/// such entry the key has its default, and a value that is accepted adds the entry.
template <typename SectionStruct, typename Entry, typename Value, typename Format>
Key entry_key(std::string name, SectionStruct Deck::*section,
              std::vector<Entry> SectionStruct::*list, std::string entry, Value Entry::*member,
              Format format, std::string unit, std::string meaning) {
    return {.name = std::move(name),
            .type = std::string(Format::kType),
            .unit = std::move(unit),
            .allowed = format.allowed(),
            .meaning = std::move(meaning),
            .text =
                [=](const Deck& deck) {
                    const Entry* found = find_entry(deck.*section.*list, entry);
                    return format.text(found == nullptr ? Entry{}.*member : found->*member);
                },
            .assign =
                [=](Deck& deck, std::string_view text) {
                    std::vector<Entry>& entries = deck.*section.*list;
                    Value value{};
                    auto problem = format.parse(text, value);
                    if (problem) return problem;
                    auto found = std::ranges::find(entries, entry, &Entry::name);
                    if (found == entries.end()) {
                        found = entries.insert(found, Entry{.name = entry});
                    }
                    (*found).*member = std::move(value);
                    return problem;
                }};
}

/// A list: sections `[prefix.NAME]` with the keys that `keys(prefix + ".", NAME)` returns.
/// `entries` are the names in a deck.
template <typename Entries, typename Keys>
Section list_section(std::string prefix, std::string meaning, Entries entries, Keys keys) {
    prefix += '.';
    const std::string name = prefix + std::string(kEntryPlaceholder);
    return {name, std::move(meaning), keys(prefix, kEntryPlaceholder), std::move(entries),
            [=](std::string_view entry) { return keys(prefix, entry); }};
}

Section run_section();
Section model_section();
Section data_section();
Section data_source_sections();
Section generate_section();
Section train_section();
Section elasticity_section();
Section optimizer_section();
Section parameter_group_sections();
Section schedule_section();
Section shard_section();
Section reduce_section();
Section precision_section();
Section topology_section();
Section comm_section();
Section stop_section();
Section checkpoint_section();
Section kernels_section();
Section device_section();
Section trace_section();
Section fault_section();

}  // namespace fullshard::config
