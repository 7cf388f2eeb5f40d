#include "config/key_table.h"

#include "config/key_binding.h"

#include <algorithm>

namespace fullshard::config {
namespace {

std::optional<Key> find_in(const std::vector<Key>& keys, std::string_view name) {
    const auto found = std::ranges::find(keys, name, &Key::name);
    return found == keys.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

std::string_view Section::prefix() const {
    return std::string_view(name).substr(0, name.size() - kEntryPlaceholder.size());
}

const std::vector<Section>& key_table() {
    static const std::vector<Section> table{
        run_section(),          model_section(),      data_section(),
        data_source_sections(), generate_section(),   train_section(),
        elasticity_section(),   optimizer_section(),  parameter_group_sections(),
        schedule_section(),     shard_section(),      reduce_section(),
        precision_section(),    topology_section(),   comm_section(),
        stop_section(),         checkpoint_section(), kernels_section(),
        device_section(),       trace_section(),      fault_section()};
    return table;
}

std::vector<Section> sections_of(const Deck& deck) {
    std::vector<Section> result;
    for (const Section& section : key_table()) {
        if (!section.is_list()) {
            result.push_back(section);
            continue;
        }
        for (const std::string& entry : section.entries(deck)) {
            result.push_back(
                {std::string(section.prefix()) + entry, section.meaning, section.keys_of(entry)});
        }
    }
    return result;
}

const Section* find_list(std::string_view key_name) {
    const auto owns = [&](const Section& section) {
        return section.is_list() && key_name.starts_with(section.prefix());
    };
    const auto found = std::ranges::find_if(key_table(), owns);
    return found == key_table().end() ? nullptr : &*found;
}

bool is_entry_name(std::string_view name) {
    const auto allowed = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
    };
    return !name.empty() && std::ranges::all_of(name, allowed);
}

std::optional<Key> find_key(std::string_view name) {
    if (const Section* list = find_list(name)) {
        const std::string_view rest = name.substr(list->prefix().size());
        const std::string_view entry = rest.substr(0, rest.rfind('.'));
        return is_entry_name(entry) ? find_in(list->keys_of(entry), name) : std::nullopt;
    }
    for (const Section& section : key_table()) {
        if (auto found = find_in(section.keys, name)) return found;
    }
    return std::nullopt;
}

std::vector<std::string> key_names(std::string_view entry) {
    std::vector<std::string> names;
    for (const Section& section : key_table()) {
        const auto keys = section.is_list() ? section.keys_of(entry) : section.keys;
        for (const Key& key : keys) names.push_back(key.name);
    }
    return names;
}

std::string default_text(const Key& key) {
    return key.text(Deck{});
}

}  // namespace fullshard::config
