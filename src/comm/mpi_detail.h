// Inside comm only: the MPI side of Group, and the one way to check MPI's status codes.
#pragma once

#include "comm/group.h"
#include "comm/ledger.h"

#include <mpi.h>

#include <memory>
#include <source_location>
#include <string>
#include <vector>

namespace fullshard::comm {

/// What groups hand on to those made from them.
struct GroupSettings {
    double timeout_s = 0.0;
    std::shared_ptr<Ledger> ledger;
    CollectiveCheck check = CollectiveCheck::kOff;
};

struct Group::Impl {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm check_comm = MPI_COMM_NULL;  ///< carries comparisons only; null unless they are on
    int rank = 0;
    int size = 0;
    GroupSettings settings;
    std::string name;
    std::vector<int> members;  ///< by rank of the group: rank of the job
    std::int64_t track = 0;    ///< of its control calls in the ledger

    Impl(MPI_Comm owned, GroupSettings chosen, std::string called);
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    Ledger& ledger() const { return *settings.ledger; }
    /// Notes the call and, where comm.check is on, waits until it is known that all ranks make it.
    /// Returns its number.
    std::int64_t begin(const Call& call) const;
    /// The same for a call of MPI's own that blocks: it lasts as long as the result lives.
    [[nodiscard]] Ledger::Blocking block_in(const Call& call) const {
        return {ledger(), {track, begin(call), call.describe()}};
    }
};

/// A call that its group waits for.
struct Pending {
    const Group::Impl& group;
    std::int64_t sequence;  ///< in the group's track; 0: a message that is no collective
    const Call& call;

    Wait wait() const { return {group.track, sequence, call.describe()}; }
};

/// Polls until the request is complete, with the group's deadline.
void complete(MPI_Request& request, const Pending& pending);

/// Throws CommunicationError naming process, call, MPI's text and the place if `status` is an
/// error.
void check_mpi(int status, const char* call,
               std::source_location where = std::source_location::current());

}  // namespace fullshard::comm
