#include "comm/stream_communicator.h"

#include "base/error.h"
#include "comm/waiter.h"

#include <algorithm>
#include <limits>

namespace fullshard::comm {

namespace {
constexpr const char* kSumTypes = "sums are of floating-point types";
constexpr const char* kMemory = "collectives on streams take memory of the device";
}  // namespace

void StreamCommunicator::check_blocks(const RankBlocks& blocks) const {
    ensure(blocks.stride == blocks.block_count, "blocks of a collective on streams are adjacent");
    ensure(blocks.device == memory_, kMemory);
}

void StreamCommunicator::all_gather(const RankBlocks& blocks, device::Stream& stream) {
    check_blocks(blocks);
    bytes_received_ += (size() - 1) * blocks.block_bytes();
    enqueue_all_gather(
        {.kind = "all_gather", .count = blocks.block_count, .type = name_of(blocks.dtype)}, blocks,
        stream);
}

void StreamCommunicator::reduce_scatter(const RankBlocks& blocks, TypedSpan out,
                                        device::Stream& stream) {
    check_blocks(blocks);
    ensure(blocks.dtype != DType::kInt64, kSumTypes);
    ensure(out.count == blocks.block_count && out.dtype == blocks.dtype,
           "reduce_scatter's result is one block of the blocks' type");
    ensure(out.device == memory_, kMemory);
    bytes_received_ += (size() - 1) * blocks.block_bytes();
    enqueue_reduce_scatter(
        {.kind = "reduce_scatter", .count = blocks.block_count, .type = name_of(blocks.dtype)},
        blocks, out, stream);
}

void StreamCommunicator::all_reduce(TypedSpan values, device::Stream& stream) {
    ensure(values.dtype != DType::kInt64, kSumTypes);
    ensure(values.device == memory_, kMemory);
    const std::int64_t block = (values.count + size() - 1) / size();
    const std::int64_t mine = std::clamp<std::int64_t>(values.count - rank() * block, 0, block);
    bytes_received_ += ((size() - 1) * mine + values.count - mine) * size_of(values.dtype);
    enqueue_all_reduce({.kind = "all_reduce", .count = values.count, .type = name_of(values.dtype)},
                       values, stream);
}

void StreamCommunicator::broadcast(TypedSpan values, int root, device::Stream& stream) {
    ensure(root >= 0 && root < size(), "a broadcast has a root in its group");
    ensure(values.device == memory_, kMemory);
    if (rank() != root) bytes_received_ += values.bytes();
    enqueue_broadcast(
        {.kind = "broadcast", .count = values.count, .type = name_of(values.dtype), .root = root},
        values, stream);
}

void StreamMesh::wait(device::Device& device, const device::Event& event) {
    Waiter waiter(world_.ledger(), world_.timeout_s(), [this] {
        return Wait{latest_.track, latest_.sequence, latest_.call.describe()};
    });
    // The waiter keeps the deadline: it knows which call is waited for, and when we were stopped.
    device.wait(event, {.timeout_s = std::numeric_limits<double>::infinity(), .idle = [&] {
                            check();
                            progress_.advance();
                            waiter.pause();
                        }});
}

}  // namespace fullshard::comm
