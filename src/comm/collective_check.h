// comm.check: do all ranks of a group make the same call?
#pragma once

#include "comm/ledger.h"

#include <mpi.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace fullshard::comm {

/// One comparison in flight. Each rank sends what it is about to call to the next rank of the group
/// and compares with what the rank before it sends: where any two ranks differ, two neighbours do.
/// Inside comm only.
class CallComparison {
  public:
    CallComparison() = default;
    ~CallComparison();
    CallComparison(const CallComparison&) = delete;
    CallComparison& operator=(const CallComparison&) = delete;

    /// `comm` carries comparisons only; those in flight together have different tags. `members`
    /// are the group's ranks as the job counts them.
    void begin(MPI_Comm comm, int tag, std::span<const int> members, const std::string& track,
               std::int64_t sequence, const Call& call);
    /// Whether both messages have arrived; then the calls were equal. Throws CommunicationError
    /// naming both calls when they are not. True when nothing is in flight.
    bool done();

  private:
    /// A call as it travels.
    struct Message {
        std::array<char, 64> text{};
        std::int64_t sequence = 0;
    };

    Message mine_;
    Message theirs_;
    std::array<MPI_Request, 2> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    std::string track_;
    int my_rank_ = 0;
    int their_rank_ = 0;
    bool in_flight_ = false;
};

}  // namespace fullshard::comm
