// Preflight: is this allocation fit for a run?
#pragma once

#include "comm/group.h"
#include "comm/topology.h"
#include "config/deck.h"
#include "doctor/finding.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::doctor {

/// What a run of the deck takes.
struct Needs {
    std::int64_t shared_bytes = 0;      ///< of the node's shared memory, allocated by this rank
    std::int64_t device_bytes = 0;      ///< of this rank's device
    std::int64_t checkpoint_bytes = 0;  ///< of one checkpoint
};

/// A device and its memory, in bytes.
struct DeviceFacts {
    std::string description;
    std::int64_t total_bytes = 0;
    std::int64_t free_bytes = 0;
};

/// The devices that a run computes on, as it would use them.
class Devices {
  public:
    virtual ~Devices() = default;
    /// Opens this rank's. Throws AgreedError. Collective over the ranks of the topology.
    virtual DeviceFacts open(const comm::Topology& topology) = 0;
    /// Makes communicators of the opened devices and tries each kind of collective. In the same
    /// way.
    virtual void connect(const comm::Topology& topology) = 0;
};

/// What the program knows and the checks cannot find out.
struct Request {
    const comm::Group& job;
    const config::Deck& deck;
    std::string mpi_library;
    std::string thread_level;          ///< granted, by its name in MPI
    std::vector<Finding> launch = {};  ///< of launcher and batch system; rank 0's are told
    std::optional<Needs> needs = {};   ///< none without a deck
    Devices* devices = nullptr;        ///< null: the run computes on CPUs
};

/// The deadline of one collective, and half the one of a whole check, which is in the ledger of
/// Request::job for the watchdog: the deck's, at most this.
inline constexpr double kMostSeconds = 60.0;

/// Runs all checks, and hands each finding's text to `print` on rank 0 as soon as it is there.
/// Returns whether nothing failed, alike on all ranks. A failure that the ranks agree on does not
/// keep later checks from running; a rank that does not come ends the job: CommunicationError, or
/// the watchdog where a library waits for it. Leaves nothing in run.dir. Collective over all ranks
/// of the job.
bool examine(const Request& request, const std::function<void(const std::string&)>& print);

}  // namespace fullshard::doctor
