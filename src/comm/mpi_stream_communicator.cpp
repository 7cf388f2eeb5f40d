#include "comm/mpi_stream_communicator.h"

#include "base/aligned_buffer.h"
#include "base/error.h"

#include <array>
#include <memory>
#include <utility>

namespace fullshard::comm {

namespace {

/// A host device may start the operations of different streams in any order, and in another one on
/// each rank. All ranks enqueue them in one order, though: the number of the call, modulo this,
/// tells which belong together.
constexpr std::int64_t kChannels = 64;

TypedSpan span_of(const RankBlocks& blocks, std::int64_t first, std::int64_t end) {
    TypedSpan span;
    span.data = blocks.block(first);
    span.count = (end - first) * blocks.block_count;
    span.dtype = blocks.dtype;
    span.device = blocks.device;
    return span;
}

}  // namespace

class MpiStreamCommunicator::Collective final : public device::PolledOperation {
  public:
    Collective(MpiStreamCommunicator& owner, int channel, AlignedBuffer scratch, Post post)
        : owner_(owner), channel_(channel), scratch_(std::move(scratch)), post_(std::move(post)) {}

    void start() override { handle_ = post_(channel_, scratch_.typed()); }
    bool ready() override {
        if (!handle_.ready()) return false;
        handle_.wait();
        --owner_.in_flight_;
        return true;
    }

  private:
    MpiStreamCommunicator& owner_;
    int channel_;
    AlignedBuffer scratch_;
    Post post_;
    Handle handle_;
};

MpiStreamCommunicator::MpiStreamCommunicator(const Group& group, Progress& progress,
                                             LatestCall& latest)
    : StreamCommunicator(group, DeviceKind::kHost),
      communicator_(group, progress),
      latest_(latest) {}

void MpiStreamCommunicator::enqueue(const Call& call, const device::Access& access,
                                    device::Stream& stream, std::int64_t scratch_count, DType dtype,
                                    Post post) {
    ensure(in_flight_ < kChannels, "a channel for each collective under way");
    const int channel = static_cast<int>(calls_++ % kChannels);
    latest_.call = call;
    ++in_flight_;
    stream.run(access, std::make_unique<Collective>(
                           *this, channel, AlignedBuffer(scratch_count, dtype), std::move(post)));
}

void MpiStreamCommunicator::enqueue_all_gather(const Call& call, const RankBlocks& blocks,
                                               device::Stream& stream) {
    const std::array reads{span_of(blocks, rank(), rank() + 1)};
    const std::array writes{span_of(blocks, 0, rank()), span_of(blocks, rank() + 1, size())};
    enqueue(call, {.name = call.kind, .reads = reads, .writes = writes}, stream, 0, blocks.dtype,
            [this, blocks](int channel, TypedSpan) {
                return communicator_.all_gather(blocks, channel);
            });
}

void MpiStreamCommunicator::enqueue_reduce_scatter(const Call& call, const RankBlocks& blocks,
                                                   TypedSpan out, device::Stream& stream) {
    const std::array reads{span_of(blocks, 0, size())};
    const std::array writes{out};
    enqueue(call, {.name = call.kind, .reads = reads, .writes = writes}, stream,
            (size() - 1) * blocks.block_count, blocks.dtype,
            [this, blocks, out](int channel, TypedSpan scratch) {
                return communicator_.reduce_scatter(blocks, out, scratch, channel);
            });
}

void MpiStreamCommunicator::enqueue_all_reduce(const Call& call, TypedSpan values,
                                               device::Stream& stream) {
    const std::array accessed{values};
    const std::int64_t block = (values.count + size() - 1) / size();
    enqueue(call, {.name = call.kind, .reads = accessed, .writes = accessed}, stream,
            (size() - 1) * block, values.dtype, [this, values](int channel, TypedSpan scratch) {
                return communicator_.all_reduce(values, scratch, channel);
            });
}

void MpiStreamCommunicator::enqueue_broadcast(const Call& call, TypedSpan values,
                                              device::Stream& stream) {
    const std::array accessed{values};
    device::Access access{.name = call.kind};
    (rank() == call.root ? access.reads : access.writes) = accessed;
    enqueue(call, access, stream, 0, values.dtype,
            [this, values, root = call.root](int channel, TypedSpan) {
                return communicator_.broadcast(values, root, channel);
            });
}

MpiStreamMesh::MpiStreamMesh(const Group& world, const Group& shard_group, const Group& replicas,
                             Progress& progress)
    : StreamMesh(world, progress),
      shard_group_(shard_group, progress, latest()),
      replicas_(replicas, progress, latest()) {}

bool MpiStreamMesh::abort() noexcept {
    return shard_group_.in_flight() == 0 && replicas_.in_flight() == 0;
}

void MpiStreamMesh::close() {
    ensure(shard_group_.in_flight() == 0 && replicas_.in_flight() == 0,
           "a mesh is closed after its streams are done");
}

}  // namespace fullshard::comm
