// Which rank runs where: host, node, and the CPUs that the system lets it use.
#pragma once

#include "comm/topology.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fullshard::comm {

struct RankPlace {
    int rank = 0;  ///< in Topology::world
    std::string host;
    int node = 0;           ///< Topology::node_index
    int local_rank = 0;     ///< in Topology::node
    std::vector<int> cpus;  ///< numbers of those in the affinity mask, ascending
    int node_cpus = 0;      ///< online CPUs of the host

    bool operator==(const RankPlace&) const = default;
};

/// Numbers of the CPUs that the system lets this process use, ascending. Throws RunError when it
/// does not tell.
std::vector<int> allowed_cpus();

/// Places of all ranks, in the order of `topology.world`. "CPU" is the kernel's: a hardware thread.
/// Throws RunError when the system does not tell the mask. Collective over the world.
std::vector<RankPlace> gather_places(const Topology& topology);

/// "0-3,8" of ascending numbers; "none" without any.
std::string cpu_list(std::span<const int> cpus);

/// Whether every rank can have `cpus` CPUs to itself: its host has as many for each of its ranks
/// among those that they may use, and none is bound to fewer.
bool have_cpus(std::span<const RankPlace> places, std::int64_t cpus);

/// A sentence with its remedy for each thing that makes ranks of a host wait for each other's CPUs:
/// fewer CPUs than ranks * threads, masks that overlap or are too small for the `threads` that each
/// rank computes with, ranks that are not bound at all. Hosts in the same state share a sentence.
std::vector<std::string> placement_warnings(std::span<const RankPlace> places,
                                            std::int64_t threads);

}  // namespace fullshard::comm
