#include "comm/nccl_shim.h"

#include "base/span.h"
#include "kernels/half_float.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace {

using fullshard::testing::nccl_shim;
using fullshard::testing::NcclCall;

/// Messages to and from all peers of a communicator, and what follows them.
struct Exchange {
    std::vector<std::byte> sent;
    std::vector<std::vector<std::byte>> received;  ///< by rank
    std::vector<MPI_Request> sends;
    std::vector<MPI_Request> receives;
    std::function<void(const std::vector<std::vector<std::byte>>&)> then;

    bool done() {
        int left = 0, arrived = 0;
        MPI_Testall(static_cast<int>(sends.size()), sends.data(), &left, MPI_STATUSES_IGNORE);
        MPI_Testall(static_cast<int>(receives.size()), receives.data(), &arrived,
                    MPI_STATUSES_IGNORE);
        return left != 0 && arrived != 0;
    }
    void cancel() {
        for (MPI_Request& request : receives) {
            if (request == MPI_REQUEST_NULL) continue;
            MPI_Cancel(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        for (MPI_Request& request : sends) {
            if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
        }
    }
};

/// One for all communicators of the process; they differ in their tags.
MPI_Comm carrier() {
    static const MPI_Comm comm = [] {
        MPI_Comm copy = MPI_COMM_NULL;
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        return copy;
    }();
    return comm;
}

}  // namespace

struct ncclComm {
    std::string name;
    std::vector<int> members;  ///< world ranks
    int rank = 0;
    int tag = 0;
    int children = 0;
    bool never = false;
    bool revoked = false;
    int looks = 0;
    std::unique_ptr<Exchange> exchange;

    int size() const { return static_cast<int>(members.size()); }

    /// Sends `bytes` to every peer and receives as many from each: those at `data`, or, where
    /// `scatter`, the peer's block of them.
    void begin(const void* data, std::size_t bytes, bool scatter, decltype(Exchange::then) then) {
        exchange = std::make_unique<Exchange>();
        exchange->received.assign(members.size(), std::vector<std::byte>(bytes));
        exchange->then = std::move(then);
        const auto* const first = static_cast<const std::byte*>(data);
        exchange->sent.assign(first, first + (scatter ? members.size() : 1) * bytes);
        for (int peer = 0; peer < size(); ++peer) {
            const auto index = static_cast<std::size_t>(peer);
            std::byte* const to_peer = exchange->sent.data() + (scatter ? index * bytes : 0);
            std::byte* const from_peer = exchange->received[index].data();
            if (peer == rank) {
                std::memcpy(from_peer, to_peer, bytes);
                continue;
            }
            MPI_Irecv(from_peer, static_cast<int>(bytes), MPI_BYTE, members[index], tag, carrier(),
                      &exchange->receives.emplace_back());
            MPI_Isend(to_peer, static_cast<int>(bytes), MPI_BYTE, members[index], tag, carrier(),
                      &exchange->sends.emplace_back());
        }
    }

    ncclResult_t state() {
        if (never) return ncclInProgress;
        if (exchange != nullptr) {
            if (!exchange->done()) return ncclInProgress;
            const auto done = std::move(exchange);
            done->then(done->received);
        }
        if (looks > 0) {
            --looks;
            return ncclInProgress;
        }
        return nccl_shim().async_error;
    }

    /// How a call that `function` made leaves the communicator.
    ncclResult_t after(const std::string& function) {
        never = nccl_shim().never_settles.contains(function);
        looks = nccl_shim().looks;
        return state();
    }
};

namespace {

std::size_t size_of_type(ncclDataType_t type) {
    return type == ncclInt64 ? 8 : type == ncclFloat32 ? 4 : 2;
}

/// Adds in rank order; each addition is rounded to the type.
void add(std::byte* sum, const std::byte* value, std::size_t count, ncclDataType_t type) {
    using fullshard::BFloat16, fullshard::Float16;
    using namespace fullshard::kernels;
    for (std::size_t i = 0; i < count; ++i) {
        if (type == ncclFloat32) {
            reinterpret_cast<float*>(sum)[i] += reinterpret_cast<const float*>(value)[i];
        } else if (type == ncclBfloat16) {
            auto& at = reinterpret_cast<BFloat16*>(sum)[i];
            at = to_bfloat16(to_float(at) + to_float(reinterpret_cast<const BFloat16*>(value)[i]));
        } else {
            auto& at = reinterpret_cast<Float16*>(sum)[i];
            at = to_float16(to_float(at) + to_float(reinterpret_cast<const Float16*>(value)[i]));
        }
    }
}

/// Notes the call; the result that ends it already, or ncclSuccess.
ncclResult_t enter(const NcclCall& call, ncclComm_t comm = nullptr) {
    nccl_shim().calls.push_back(call);
    if (const auto found = nccl_shim().fails.find(call.function); found != nccl_shim().fails.end())
        return found->second;
    if (comm != nullptr && (comm->revoked || comm->state() == ncclInProgress))
        return ncclInvalidUsage;
    return ncclSuccess;
}

/// The communicator that is made of `members`; the caller's `out` learns of it.
ncclComm_t make(std::string name, std::vector<int> members, int world_rank, int tag) {
    auto* const comm = new ncclComm;
    comm->name = std::move(name);
    comm->members = std::move(members);
    comm->rank =
        static_cast<int>(std::ranges::find(comm->members, world_rank) - comm->members.begin());
    comm->tag = tag;
    ++nccl_shim().communicators;
    return comm;
}

void end(ncclComm_t comm) {
    if (comm->exchange != nullptr) comm->exchange->cancel();
    delete comm;
    --nccl_shim().communicators;
}

ncclResult_t reduce(const NcclCall& call, ncclComm_t comm, bool scatter) {
    const auto type = static_cast<ncclDataType_t>(call.type);
    if (const ncclResult_t result = enter(call, comm); result != ncclSuccess) return result;
    const auto count = static_cast<std::size_t>(call.count);
    const std::size_t bytes = count * size_of_type(type);
    comm->begin(call.send, bytes, scatter,
                [=, out = static_cast<std::byte*>(call.receive)](const auto& received) {
                    std::memcpy(out, received[0].data(), bytes);
                    for (std::size_t r = 1; r < received.size(); ++r) {
                        add(out, received[r].data(), count, type);
                    }
                });
    return comm->after(call.function);
}

}  // namespace

namespace fullshard::testing {

NcclShim& nccl_shim() {
    static NcclShim shim;
    return shim;
}

NcclShim& fresh_nccl_shim() {
    carrier();
    return nccl_shim() = {};
}

std::vector<std::string> NcclShim::functions() const {
    std::vector<std::string> names;
    for (const NcclCall& call : calls) names.push_back(call.function);
    return names;
}

}  // namespace fullshard::testing

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    *version = nccl_shim().version;
    return enter({.function = "ncclGetVersion"});
}

const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError   ? "remote process exited or there was a network error"
           : result == ncclSystemError ? "unhandled system error"
                                       : "other error";
}

const char* ncclGetLastError(ncclComm_t) {
    return "the shim was told to fail";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int made = 0;
    ++made;
    std::memset(id->internal, 'x', sizeof id->internal);
    std::memcpy(id->internal, &made, sizeof made);
    return enter({.function = "ncclGetUniqueId"});
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    const NcclCall call{.function = "ncclCommInitRankConfig",
                        .comm = config->commName,
                        .first = size,
                        .second = rank,
                        .blocking = config->blocking,
                        .split_share = config->splitShare};
    if (const ncclResult_t result = enter(call); result != ncclSuccess) return result;
    int made = 0;
    std::memcpy(&made, id.internal, sizeof made);
    constexpr int kTagsOfAFamily = 16;
    std::vector<int> members(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) members[static_cast<std::size_t>(i)] = i;
    *comm = make(config->commName, members, rank, made * kTagsOfAFamily);
    (*comm)->begin(id.internal, sizeof id.internal, /*scatter=*/false, [](const auto&) {});
    return (*comm)->after(call.function);
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config) {
    const NcclCall call{.function = "ncclCommSplit",
                        .comm = config->commName,
                        .first = color,
                        .second = key,
                        .blocking = config->blocking,
                        .split_share = config->splitShare};
    if (const ncclResult_t result = enter(call, parent); result != ncclSuccess) return result;
    const std::array<int, 2> mine{color, key};
    const int tag = parent->tag + ++parent->children;
    parent->begin(mine.data(), sizeof mine, /*scatter=*/false,
                  [=, name = std::string(config->commName)](const auto& received) {
                      std::vector<std::pair<int, int>> by_key;
                      for (std::size_t r = 0; r < received.size(); ++r) {
                          std::array<int, 2> theirs{};
                          std::memcpy(theirs.data(), received[r].data(), sizeof theirs);
                          if (theirs[0] == color)
                              by_key.emplace_back(theirs[1], parent->members[r]);
                      }
                      std::ranges::sort(by_key);
                      std::vector<int> members;
                      for (const auto& [unused, member] : by_key) members.push_back(member);
                      *child = make(name, members,
                                    parent->members[static_cast<std::size_t>(parent->rank)], tag);
                  });
    return parent->after(call.function);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    *state = comm->state();
    return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    *count = comm->size();
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t, int* device) {
    *device = nccl_shim().cuda_device;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    const NcclCall call{.function = "ncclCommFinalize", .comm = comm->name};
    if (const ncclResult_t result = enter(call, comm); result != ncclSuccess) return result;
    return comm->after(call.function);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const ncclResult_t result = enter({.function = "ncclCommDestroy", .comm = comm->name}, comm);
    end(comm);
    return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    using namespace std::chrono_literals;
    while (std::atomic_ref(nccl_shim().abort_hangs).load()) std::this_thread::sleep_for(1ms);
    const ncclResult_t result = enter({.function = "ncclCommAbort", .comm = comm->name});
    if (comm->revoked && comm->state() == ncclInProgress) ++nccl_shim().hasty_aborts;
    end(comm);
    return result;
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
    const ncclResult_t result = enter({.function = "ncclCommRevoke", .comm = comm->name});
    if (result != ncclSuccess || flags != NCCL_REVOKE_DEFAULT || comm->revoked)
        return result == ncclSuccess ? ncclInvalidArgument : result;
    comm->revoked = true;
    if (comm->exchange != nullptr) comm->exchange->cancel();
    comm->exchange = nullptr;
    return comm->after("ncclCommRevoke");
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    const NcclCall call{.function = "ncclAllGather",
                        .comm = comm->name,
                        .count = static_cast<std::int64_t>(count),
                        .type = type,
                        .send = send,
                        .receive = receive,
                        .stream = stream};
    if (const ncclResult_t result = enter(call, comm); result != ncclSuccess) return result;
    const std::size_t bytes = count * size_of_type(type);
    comm->begin(send, bytes, /*scatter=*/false, [=](const auto& received) {
        for (std::size_t r = 0; r < received.size(); ++r) {
            std::memcpy(static_cast<std::byte*>(receive) + r * bytes, received[r].data(), bytes);
        }
        if (type == ncclFloat32) *static_cast<float*>(receive) += nccl_shim().corruption;
    });
    return comm->after(call.function);
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return reduce({.function = "ncclReduceScatter",
                   .comm = comm->name,
                   .count = static_cast<std::int64_t>(count),
                   .type = type,
                   .op = op,
                   .send = send,
                   .receive = receive,
                   .stream = stream},
                  comm, /*scatter=*/true);
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return reduce({.function = "ncclAllReduce",
                   .comm = comm->name,
                   .count = static_cast<std::int64_t>(count),
                   .type = type,
                   .op = op,
                   .send = send,
                   .receive = receive,
                   .stream = stream},
                  comm, /*scatter=*/false);
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    const NcclCall call{.function = "ncclBroadcast",
                        .comm = comm->name,
                        .count = static_cast<std::int64_t>(count),
                        .type = type,
                        .root = root,
                        .send = send,
                        .receive = receive,
                        .stream = stream};
    if (const ncclResult_t result = enter(call, comm); result != ncclSuccess) return result;
    const std::size_t bytes = count * size_of_type(type);
    comm->begin(send, bytes, /*scatter=*/false, [=](const auto& received) {
        std::memcpy(receive, received[static_cast<std::size_t>(root)].data(), bytes);
    });
    return comm->after(call.function);
}

}  // extern "C"
