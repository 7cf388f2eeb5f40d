// In NCCL's place: functions of the same names that record their calls, move the data over MPI on
// host memory, and fail where a test wants them to.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace fullshard::testing {

/// A call as it was made; what a function has no argument for keeps its default.
struct NcclCall {
    std::string function;
    std::string comm{};  ///< the commName of its configuration
    std::int64_t count = 0;
    int type = -1;
    int op = -1;
    int root = -1;
    const void* send = nullptr;
    void* receive = nullptr;
    void* stream = nullptr;
    // Of ncclCommInitRankConfig (size, rank) and ncclCommSplit (color, key).
    int first = -1;
    int second = -1;
    int blocking = -1;
    int split_share = -1;
};

/// What NCCL is on this rank. A communicator is settled, as with NCCL, when its peers have done
/// their part; a call on one that is not, or that was revoked, is ncclInvalidUsage.
struct NcclShim {
    int version = 22809;
    int cuda_device = 0;
    /// By function: what it returns instead of doing anything.
    std::map<std::string, ncclResult_t> fails{};
    /// Functions after which the communicator is in progress for ever.
    std::set<std::string> never_settles{};
    /// So many looks at a communicator after each call find it in progress.
    int looks = 0;
    /// What communicators report once they have settled.
    ncclResult_t async_error = ncclSuccess;
    /// Added to the first value that ncclAllGather writes.
    float corruption = 0.0F;
    /// While it is set, ncclCommAbort does not return.
    bool abort_hangs = false;

    std::vector<NcclCall> calls{};
    int communicators = 0;  ///< that exist
    /// Aborts of communicators that were revoked and not settled yet: NCCL could lose them.
    int hasty_aborts = 0;

    /// Names of the functions called on any communicator, in order.
    std::vector<std::string> functions() const;
};

/// This rank's.
NcclShim& nccl_shim();
/// The same, as it is at start: for the beginning of a test. Collective over all ranks of the job.
NcclShim& fresh_nccl_shim();

}  // namespace fullshard::testing
