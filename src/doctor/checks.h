// The checks, by theme. Each is collective over the world, throws AgreedError or CommunicationError
// only, and returns its findings on rank 0; other ranks may return others.
#pragma once

#include "comm/topology.h"
#include "doctor/doctor.h"
#include "doctor/finding.h"

#include <functional>
#include <string_view>
#include <vector>

namespace fullshard::doctor {

/// What all checks share.
struct Subject {
    const Request& request;
    comm::Group job;          ///< ranks as the launcher numbered them
    comm::Topology topology;  ///< the nodes that a run would use
    comm::Group host;         ///< ranks that can really share memory with this one
    double limit_s = kMostSeconds;

    const comm::Group& world() const { return topology.world; }
};

/// The ranks of the job as the deck sees them. Throws AgreedError where topology.ranks_per_node
/// does not fit them. Collective over all ranks of the job.
Subject subject_of(const Request& request);

using Findings = std::vector<Finding>;

/// What `check` finds; where it throws AgreedError, one failure with that reason.
Findings guarded(std::string_view name, std::string_view remedy,
                 const std::function<Findings()>& check);

/// Ranks, nodes, their order, and what the program says of launcher and batch system.
Findings check_launch(const Subject& subject);
/// The MPI library and the program are the same everywhere; thread level.
Findings check_programs(const Subject& subject);
/// CPUs that each rank may use.
Findings check_binding(const Subject& subject);
/// Clocks of all nodes against rank 0's.
Findings check_clocks(const Subject& subject);
/// Size of the nodes' shared memory.
Findings check_shared_memory(const Subject& subject);
/// A node's arena, written and read by all its ranks.
Findings check_arena(const Subject& subject);
/// Whether a rank may read another one's memory, as MPI does for large messages within a node.
Findings check_single_copy(const Subject& subject);
/// The device of each rank, its memory, and collectives between all of them. Nothing on CPUs.
Findings check_devices(const Subject& subject);
/// File system of run.dir: kind, the same for all ranks, locks, parallel writes, space.
Findings check_storage(const Subject& subject);
/// Collectives give the right numbers, in the right order of summation.
Findings check_sums(const Subject& subject);
/// Latency and bandwidth of the collectives in each kind of group.
Findings check_speed(const Subject& subject);

}  // namespace fullshard::doctor
