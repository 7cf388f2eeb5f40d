#include "train/parameter_groups.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::train {

namespace {

bool matches(const config::ParameterGroup& group, std::string_view parameter) {
    return std::ranges::any_of(group.patterns, [&](std::string_view pattern) {
        return pattern_distance(pattern, parameter) == 0;
    });
}

/// Every parameter with memory of its own, and of each tied one whose memory it uses.
struct Names {
    std::vector<std::string_view> own;
    std::map<std::string_view, std::string_view> tied;
};

Names names_of(const spec::ModelSpec& model) {
    Names names;
    for (const spec::StageSpec& stage : model.stages) {
        for (const spec::ParameterSpec& parameter : stage.parameters) {
            if (parameter.tied_to.empty()) {
                names.own.push_back(parameter.name);
            } else {
                names.tied.emplace(parameter.name, parameter.tied_to);
            }
        }
    }
    return names;
}

/// What the user may have meant.
std::string remedy(std::string_view pattern, const Names& names) {
    for (const auto& [name, other] : names.tied) {
        if (pattern_distance(pattern, name) == 0) {
            return fmt::format("{} is tied to {}: name that one", name, other);
        }
    }
    std::vector<std::pair<std::size_t, std::string_view>> near;
    for (const std::string_view name : names.own) {
        near.emplace_back(pattern_distance(pattern, name), name);
    }
    constexpr std::size_t kMost = 3;
    std::ranges::stable_sort(near, {}, [](const auto& candidate) { return candidate.first; });
    near.resize(std::min(near.size(), kMost));
    std::string list;
    for (const auto& [distance, name] : near) {
        list += fmt::format("{}{}", list.empty() ? "" : ", ", name);
    }
    return "the nearest names are " + list;
}

void check(const Names& names, const config::Optimizer& optimizer) {
    std::string mistakes;
    const auto add = [&](const std::string& mistake) {
        mistakes += mistakes.empty() ? mistake : "\n" + mistake;
    };
    for (const config::ParameterGroup& group : optimizer.groups) {
        if (group.lr && *group.lr > 0.0 && optimizer.lr == 0.0) {
            add(
                fmt::format("optimizer.group.{}.lr = {} with optimizer.lr = 0: the schedule scales "
                            "both alike; set optimizer.lr above 0 and freeze what must not move",
                            group.name, *group.lr));
        }
        for (const std::string& pattern : group.patterns) {
            const bool found = std::ranges::any_of(names.own, [&](std::string_view name) {
                return pattern_distance(pattern, name) == 0;
            });
            if (found) continue;
            add(fmt::format("optimizer.group.{}.parameters: no parameter is called {}; {}",
                            group.name, pattern, remedy(pattern, names)));
        }
    }
    if (!mistakes.empty()) throw UsageError(mistakes);
}

}  // namespace

std::size_t pattern_distance(std::string_view pattern, std::string_view name) {
    // cost[j]: of the pattern read so far against the first j characters of the name.
    std::vector<std::size_t> cost(name.size() + 1);
    std::iota(cost.begin(), cost.end(), std::size_t{0});
    std::vector<std::size_t> next(cost.size());
    for (const char c : pattern) {
        const bool any = c == '*';
        next[0] = cost[0] + (any ? 0 : 1);
        for (std::size_t j = 1; j < cost.size(); ++j) {
            const bool same = c == '?' || c == name[j - 1];
            next[j] = any ? std::min(cost[j], next[j - 1])
                          : std::min({cost[j] + 1, next[j - 1] + 1, cost[j - 1] + (same ? 0 : 1)});
        }
        std::swap(cost, next);
    }
    return cost.back();
}

const config::ParameterGroup* group_of(std::string_view parameter,
                                       std::span<const config::ParameterGroup> groups) {
    const auto found = std::ranges::find_if(
        groups, [&](const config::ParameterGroup& group) { return matches(group, parameter); });
    return found == groups.end() ? nullptr : &*found;
}

spec::ModelSpec with_groups(spec::ModelSpec model, const config::Optimizer& optimizer) {
    if (optimizer.groups.empty()) return model;
    check(names_of(model), optimizer);
    bool any_trainable = false;
    for (spec::StageSpec& stage : model.stages) {
        for (spec::ParameterSpec& parameter : stage.parameters) {
            const bool tied = !parameter.tied_to.empty();
            const auto* group =
                group_of(tied ? parameter.tied_to : parameter.name, optimizer.groups);
            if (group != nullptr && group->frozen) parameter.trainable = false;
            any_trainable |= parameter.trainable;
        }
    }
    if (!any_trainable) {
        throw UsageError(
            "optimizer.group.*.frozen = on for every parameter leaves nothing to train; freeze "
            "fewer, or use eval");
    }
    return model;
}

}  // namespace fullshard::train
