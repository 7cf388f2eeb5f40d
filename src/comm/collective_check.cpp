#include "comm/collective_check.h"

#include "base/error.h"
#include "comm/mpi_detail.h"

#include <fmt/format.h>

#include <algorithm>

namespace fullshard::comm {

CallComparison::~CallComparison() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!in_flight_ || finalized != 0) return;
    for (MPI_Request& request : requests_) {
        if (request == MPI_REQUEST_NULL) continue;
        MPI_Cancel(&request);
        MPI_Request_free(&request);
    }
}

void CallComparison::begin(MPI_Comm comm, int tag, std::span<const int> members,
                           const std::string& track, std::int64_t sequence, const Call& call) {
    int rank = 0;
    int size = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    if (size == 1) return;
    const int next = (rank + 1) % size;
    const int previous = (rank + size - 1) % size;
    mine_ = {};
    const std::string text = call.describe();
    std::copy_n(text.begin(), std::min(text.size(), mine_.text.size() - 1), mine_.text.begin());
    mine_.sequence = sequence;
    track_ = track;
    my_rank_ = members[static_cast<std::size_t>(rank)];
    their_rank_ = members[static_cast<std::size_t>(previous)];
    in_flight_ = true;
    check_mpi(MPI_Irecv(&theirs_, sizeof theirs_, MPI_BYTE, previous, tag, comm, &requests_[0]),
              "MPI_Irecv");
    check_mpi(MPI_Isend(&mine_, sizeof mine_, MPI_BYTE, next, tag, comm, &requests_[1]),
              "MPI_Isend");
}

bool CallComparison::done() {
    if (!in_flight_) return true;
    int arrived = 0;
    check_mpi(MPI_Testall(2, requests_.data(), &arrived, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (arrived == 0) return false;
    in_flight_ = false;
    if (mine_.sequence == theirs_.sequence && mine_.text == theirs_.text) return true;
    const auto describe = [](int rank, const Message& message) {
        return fmt::format("rank {} calls {} (its call {})", rank, message.text.data(),
                           message.sequence);
    };
    const std::string lower =
        my_rank_ < their_rank_ ? describe(my_rank_, mine_) : describe(their_rank_, theirs_);
    const std::string upper =
        my_rank_ < their_rank_ ? describe(their_rank_, theirs_) : describe(my_rank_, mine_);
    throw CommunicationError(
        fmt::format("comm.check: ranks of one group call different collectives; in {}, {} where {}",
                    track_, lower, upper));
}

}  // namespace fullshard::comm
