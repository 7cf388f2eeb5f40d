#include "base/build_info.h"
#include "comm/placement.h"
#include "doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace fullshard::doctor {

namespace {

/// Ranks of a node have consecutive numbers.
bool node_major(const Subject& subject) {
    std::array<std::int64_t, 1> same{subject.job.rank() == subject.world().rank() ? 1 : 0};
    subject.job.all_reduce(same, comm::Reduction::kMin);
    return same[0] == 1;
}

/// Whether all ranks say the same, or the first one that says something else.
Finding same_everywhere(const Subject& subject, const std::string& check, const std::string& mine,
                        std::string_view remedy) {
    const std::vector<std::string> all = subject.job.all_gather(mine);
    const auto other =
        std::ranges::find_if(all, [&](const std::string& text) { return text != all[0]; });
    if (other == all.end()) return fine(check, all[0], "the same on all ranks");
    return failure(
        check, fmt::format("rank 0 has {}, rank {} has {}", all[0], other - all.begin(), *other),
        "the same on all ranks", std::string(remedy));
}

}  // namespace

Findings check_launch(const Subject& subject) {
    const comm::Topology& topology = subject.topology;
    const bool in_order = node_major(subject);
    const std::string ranks =
        topology.describe() +
        (in_order ? "" : ", dealt out in turn: a run numbers them node by node");
    Findings findings;
    if (topology.nodes() == 1) {
        findings.push_back(fine("launch", ranks));
    } else if (topology.equal_nodes()) {
        findings.push_back(fine("launch", ranks, "as many ranks on each node"));
    } else {
        findings.push_back(warning(
            "launch", ranks + ": nodes differ, so every rank receives whole units over the network",
            "as many ranks on each node",
            fmt::format("srun --ntasks-per-node={0} or mpirun --map-by ppr:{0}:node",
                        *std::ranges::min_element(topology.node_sizes))));
    }
    if (subject.request.deck.topology.ranks_per_node > 0) {
        findings.push_back(warning("nodes", "emulated by topology.ranks_per_node",
                                   "real nodes, unless this is a test",
                                   "leave topology.ranks_per_node at 0"));
    }
    findings.insert(findings.end(), subject.request.launch.begin(), subject.request.launch.end());
    return findings;
}

Findings check_programs(const Subject& subject) {
    const BuildInfo& build = build_info();
    return {same_everywhere(
                subject, "MPI library",
                fmt::format("{}, {}", subject.request.mpi_library, subject.request.thread_level),
                "load the same MPI module on all nodes"),
            same_everywhere(subject, "program",
                            fmt::format("FullShard {} ({}, {}, {})", build.version, build.git_hash,
                                        build.build_type, build.compiler),
                            "install the program once, on a file system that all nodes see")};
}

Findings check_binding(const Subject& subject) {
    const std::vector<comm::RankPlace> places = comm::gather_places(subject.topology);
    const std::int64_t threads = subject.request.deck.kernels.threads;
    const std::string required =
        fmt::format("{} CPU{} of its own for each rank", threads, threads == 1 ? "" : "s");
    Findings findings;
    for (const std::string& sentence : comm::placement_warnings(places, threads)) {
        // The sentence ends with what to do.
        const std::size_t cut = sentence.rfind("; ");
        findings.push_back(
            warning("binding", sentence.substr(0, cut), required, sentence.substr(cut + 2)));
    }
    if (findings.empty()) {
        findings.push_back(fine("binding",
                                fmt::format("rank 0 on {} may use CPUs {} of {}", places[0].host,
                                            comm::cpu_list(places[0].cpus), places[0].node_cpus),
                                required));
    }
    return findings;
}

}  // namespace fullshard::doctor
