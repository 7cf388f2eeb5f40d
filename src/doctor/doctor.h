// Preflight: is this allocation fit for a run?
#pragma once

#include "comm/group.h"
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
    std::int64_t checkpoint_bytes = 0;  ///< of one checkpoint
};

/// What the program knows and the checks cannot find out.
struct Request {
    const comm::Group& job;
    const config::Deck& deck;
    std::string mpi_library;
    std::string thread_level;          ///< granted, by its name in MPI
    std::vector<Finding> launch = {};  ///< of launcher and batch system; rank 0's are told
    std::optional<Needs> needs = {};   ///< none without a deck
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
