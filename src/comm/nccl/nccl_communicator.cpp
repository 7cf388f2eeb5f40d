#include "comm/nccl/nccl_communicator.h"

#include "comm/mpi_detail.h"
#include "comm/nccl/nccl_status.h"
#include "comm/waiter.h"

#include <fmt/format.h>

#include <cstddef>

namespace fullshard::comm {

namespace {

ncclDataType_t nccl_type(DType dtype) {
    switch (dtype) {
        case DType::kFloat32:
            return ncclFloat32;
        case DType::kBFloat16:
            return ncclBfloat16;
        case DType::kFloat16:
            return ncclFloat16;
        case DType::kInt64:
            break;
    }
    return ncclInt64;
}

std::size_t elements(std::int64_t count) {
    return static_cast<std::size_t>(count);
}

cudaStream_t native(const device::Stream& stream) {
    return static_cast<cudaStream_t>(stream.native());
}

}  // namespace

NcclCommunicator::NcclCommunicator(const Group& group, ncclComm_t comm, DeviceKind memory,
                                   Progress& progress, LatestCall& latest)
    : StreamCommunicator(group, memory), comm_(comm), progress_(progress), latest_(latest) {}

template <typename Launch>
void NcclCommunicator::issue(const Call& call, const char* nccl_name, Launch launch) {
    const Group::Impl& ranks = group().impl();
    latest_ = {ranks.track, ranks.begin(call), call};
    if (call.count == 0) return;
    const ncclResult_t result = launch();
    check_nccl(result, nccl_name);
    if (result == ncclSuccess) return;
    // The first calls of a kind and size class connect ranks, which goes on in the background.
    Waiter waiter(group().ledger(), group().timeout_s(), [this] {
        return Wait{latest_.track, latest_.sequence,
                    fmt::format("the launch of {}", latest_.call.describe())};
    });
    while (!settled(comm_, nccl_name)) {
        progress_.advance();
        waiter.pause();
    }
}

void NcclCommunicator::enqueue_all_gather(const Call& call, const RankBlocks& blocks,
                                          device::Stream& stream) {
    issue(call, "ncclAllGather", [&] {
        return ncclAllGather(blocks.block(rank()), blocks.first, elements(blocks.block_count),
                             nccl_type(blocks.dtype), comm_, native(stream));
    });
}

void NcclCommunicator::enqueue_reduce_scatter(const Call& call, const RankBlocks& blocks,
                                              TypedSpan out, device::Stream& stream) {
    issue(call, "ncclReduceScatter", [&] {
        return ncclReduceScatter(blocks.first, out.data, elements(blocks.block_count),
                                 nccl_type(blocks.dtype), ncclSum, comm_, native(stream));
    });
}

void NcclCommunicator::enqueue_all_reduce(const Call& call, TypedSpan values,
                                          device::Stream& stream) {
    issue(call, "ncclAllReduce", [&] {
        return ncclAllReduce(values.data, values.data, elements(values.count),
                             nccl_type(values.dtype), ncclSum, comm_, native(stream));
    });
}

void NcclCommunicator::enqueue_broadcast(const Call& call, TypedSpan values,
                                         device::Stream& stream) {
    issue(call, "ncclBroadcast", [&] {
        return ncclBroadcast(values.data, values.data, elements(values.count),
                             nccl_type(values.dtype), call.root, comm_, native(stream));
    });
}

void NcclCommunicator::check() const {
    ncclResult_t state = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    if (state == ncclSuccess || state == ncclInProgress) return;
    check_nccl(state, "a collective on the device");
}

}  // namespace fullshard::comm
