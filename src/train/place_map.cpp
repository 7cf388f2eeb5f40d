#include "train/place_map.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::train {

namespace {

/// Neighbouring nodes that are alike.
struct Nodes {
    std::span<const comm::RankPlace> places;
    std::string cpus;  ///< of one of them
    std::size_t ranks_a_node = 0;
};

std::string range(int first, int last) {
    return first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
}

/// The CPUs of a node's ranks.
std::string cpus_text(std::span<const comm::RankPlace> ranks) {
    constexpr std::size_t kListed = 16;
    const auto& first = ranks.front().cpus;
    if (std::ranges::all_of(ranks, [&](const auto& place) { return place.cpus == first; }))
        return comm::cpu_list(first);
    std::string text;
    for (const comm::RankPlace& place : ranks.first(std::min(ranks.size(), kListed))) {
        text += (text.empty() ? "" : " | ") + comm::cpu_list(place.cpus);
    }
    return ranks.size() > kListed ? text + " | ..." : text;
}

std::string line_of(const Nodes& nodes) {
    const comm::RankPlace& first = nodes.places.front();
    const comm::RankPlace& last = nodes.places.back();
    const bool one = first.node == last.node;
    const std::string hosts =
        first.host == last.host ? first.host : fmt::format("{} .. {}", first.host, last.host);
    return fmt::format("node{} {} ({}): rank{} {}{} on CPUs {}", one ? "" : "s",
                       range(first.node, last.node), hosts, first.rank == last.rank ? "" : "s",
                       range(first.rank, last.rank),
                       one ? "" : fmt::format(", {} a node,", nodes.ranks_a_node), nodes.cpus);
}

}  // namespace

std::vector<std::string> place_map(std::span<const comm::RankPlace> places,
                                   std::size_t most_lines) {
    std::vector<Nodes> groups;
    for (std::size_t begin = 0; begin < places.size();) {
        std::size_t end = begin;
        while (end < places.size() && places[end].node == places[begin].node) ++end;
        const auto node = places.subspan(begin, end - begin);
        begin = end;
        std::string cpus = cpus_text(node);
        const bool alike = !groups.empty() && groups.back().ranks_a_node == node.size() &&
                           groups.back().cpus == cpus;
        if (alike) {
            auto& folded = groups.back().places;
            folded = {folded.data(), folded.size() + node.size()};
        } else {
            groups.push_back({node, std::move(cpus), node.size()});
        }
    }
    std::vector<std::string> lines;
    for (const Nodes& nodes : groups) {
        if (lines.size() + 1 == most_lines && &nodes != &groups.back()) {
            lines.push_back(
                fmt::format("nodes {}, ranks {}: listed in the record \"run\" of metrics.jsonl",
                            range(nodes.places.front().node, places.back().node),
                            range(nodes.places.front().rank, places.back().rank)));
            break;
        }
        lines.push_back(line_of(nodes));
    }
    return lines;
}

}  // namespace fullshard::train
