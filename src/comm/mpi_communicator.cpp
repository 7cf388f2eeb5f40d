#include "comm/mpi_communicator.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/collective_check.h"
#include "comm/mpi_detail.h"
#include "comm/waiter.h"
#include "kernels/ordered_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace fullshard::comm {

/// Blocks that lie one behind the other, the last ones shorter or empty where the count does not
/// divide: what an all-reduce of any length needs.
struct MpiCommunicator::UnevenBlocks {
    RankBlocks blocks;
    std::int64_t total;  ///< elements of all blocks together

    std::int64_t count(int rank) const {
        return std::clamp<std::int64_t>(total - rank * blocks.block_count, 0, blocks.block_count);
    }
    std::int64_t bytes(int rank) const { return count(rank) * size_of(blocks.dtype); }
};

struct MpiCommunicator::Operation {
    bool active = false;
    bool complete = false;
    int channel = 0;
    Call call;
    std::int64_t track = 0;
    std::int64_t sequence = 0;
    double begun_s = 0.0;
    CallComparison comparison;  ///< only where comm.check is on, as is `post`
    std::function<void(Operation&)> post;
    std::vector<MPI_Request> requests;
    std::vector<int> peers;  ///< of the requests

    // A sum follows the messages where it has elements.
    TypedSpan sum;
    std::vector<const std::byte*> sources;
    DType source_type = DType::kFloat32;
    // Set when, for an all-reduce, the gathering of the summed blocks follows the sum.
    bool gather_after_sum = false;
    RankBlocks gather_blocks;
    std::int64_t gather_total = 0;
};

MpiCommunicator::MpiCommunicator(const Group& group, Progress& progress, ChannelName channel_name,
                                 std::int64_t max_message_bytes)
    : group_(group),
      progress_(progress),
      channel_name_(std::move(channel_name)),
      max_message_bytes_(max_message_bytes),
      registration_(progress, [this] { return advance_all(); }) {
    ensure(max_message_bytes > 0 && max_message_bytes < (std::int64_t{1} << 31),
           "a message's byte count fits MPI's int");
}

MpiCommunicator::~MpiCommunicator() {
    for (const std::int64_t track : tracks_) {
        if (track >= 0) group_.ledger().remove_track(track);
    }
}

std::int64_t MpiCommunicator::track_of(int channel) {
    const auto index = static_cast<std::size_t>(channel);
    if (index >= tracks_.size()) tracks_.resize(index + 1, -1);
    if (tracks_[index] < 0) {
        const std::string carries =
            channel_name_ ? channel_name_(channel) : fmt::format("channel {}", channel);
        tracks_[index] = group_.ledger().add_track(
            fmt::format("{} ({})", group_.impl().name, carries), group_.members());
    }
    return tracks_[index];
}

template <typename Post>
Handle MpiCommunicator::launch(int channel, const Call& call, Post post) {
    auto free = std::ranges::find_if(operations_, [](const auto& op) { return !op->active; });
    if (free == operations_.end()) {
        operations_.push_back(std::make_unique<Operation>());
        free = operations_.end() - 1;
    }
    Operation& operation = **free;
    operation.active = true;
    operation.complete = false;
    operation.channel = channel;
    operation.call = call;
    operation.track = track_of(channel);
    operation.sequence = group_.ledger().begin(operation.track, call);
    operation.begun_s = now_seconds();
    operation.requests.clear();
    operation.peers.clear();
    operation.sum = {};
    operation.gather_after_sum = false;
    const Group::Impl& group = group_.impl();
    if (group.check_comm == MPI_COMM_NULL) {
        post(operation);
    } else {
        // Tag 0 is that of the group's control calls.
        operation.comparison.begin(group.check_comm, channel + 1, group.members, group.name,
                                   operation.sequence, call);
        operation.post = std::move(post);
    }
    return {*this, free - operations_.begin()};
}

void MpiCommunicator::post_send(Operation& operation, int peer, const std::byte* data,
                                std::int64_t bytes) {
    for (std::int64_t done = 0; done < bytes; done += max_message_bytes_) {
        const int count = static_cast<int>(std::min(max_message_bytes_, bytes - done));
        check_mpi(MPI_Isend(data + done, count, MPI_BYTE, peer, operation.channel,
                            group_.impl().comm, &operation.requests.emplace_back(MPI_REQUEST_NULL)),
                  "MPI_Isend");
        operation.peers.push_back(peer);
    }
}

void MpiCommunicator::post_receive(Operation& operation, int peer, std::byte* data,
                                   std::int64_t bytes) {
    for (std::int64_t done = 0; done < bytes; done += max_message_bytes_) {
        const int count = static_cast<int>(std::min(max_message_bytes_, bytes - done));
        check_mpi(MPI_Irecv(data + done, count, MPI_BYTE, peer, operation.channel,
                            group_.impl().comm, &operation.requests.emplace_back(MPI_REQUEST_NULL)),
                  "MPI_Irecv");
        operation.peers.push_back(peer);
    }
    bytes_received_ += bytes;
}

Handle MpiCommunicator::all_gather(const RankBlocks& blocks, int channel) {
    const Call call{
        .kind = "all_gather", .count = blocks.block_count, .type = name_of(blocks.dtype)};
    return launch(channel, call, [this, blocks](Operation& operation) {
        for (int distance = 1; distance < size(); ++distance) {
            const int source = (rank() - distance + size()) % size();
            post_receive(operation, source, blocks.block(source), blocks.block_bytes());
        }
        for (int distance = 1; distance < size(); ++distance) {
            post_send(operation, (rank() + distance) % size(), blocks.block(rank()),
                      blocks.block_bytes());
        }
    });
}

void MpiCommunicator::exchange_for_sum(Operation& operation, const UnevenBlocks& blocks,
                                       TypedSpan scratch) {
    ensure(blocks.blocks.dtype != DType::kInt64, "sums are of floating-point types");
    ensure(scratch.dtype == blocks.blocks.dtype, "scratch receives elements of the blocks' type");
    const std::int64_t mine = blocks.count(rank());
    ensure(scratch.count >= (size() - 1) * mine, "scratch holds one block for each other rank");
    operation.sources.resize(static_cast<std::size_t>(size()));
    std::byte* next = scratch.data;
    for (int distance = 1; distance < size(); ++distance) {
        const int source = (rank() - distance + size()) % size();
        post_receive(operation, source, next, blocks.bytes(rank()));
        operation.sources[static_cast<std::size_t>(source)] = next;
        next += blocks.bytes(rank());
    }
    operation.sources[static_cast<std::size_t>(rank())] = blocks.blocks.block(rank());
    operation.source_type = blocks.blocks.dtype;
    for (int distance = 1; distance < size(); ++distance) {
        const int target = (rank() + distance) % size();
        post_send(operation, target, blocks.blocks.block(target), blocks.bytes(target));
    }
}

Handle MpiCommunicator::reduce_scatter(const RankBlocks& blocks, TypedSpan out, TypedSpan scratch,
                                       int channel) {
    ensure(out.count == blocks.block_count && out.dtype != DType::kInt64,
           "reduce_scatter's result is one block of a floating-point type");
    const Call call{
        .kind = "reduce_scatter", .count = blocks.block_count, .type = name_of(blocks.dtype)};
    return launch(channel, call, [this, blocks, out, scratch](Operation& operation) {
        exchange_for_sum(operation, {blocks, blocks.block_count * size()}, scratch);
        operation.sum = out;
    });
}

Handle MpiCommunicator::all_reduce(TypedSpan values, TypedSpan scratch, int channel) {
    const Call call{.kind = "all_reduce", .count = values.count, .type = name_of(values.dtype)};
    return launch(channel, call, [this, values, scratch](Operation& operation) {
        const std::int64_t block = (values.count + size() - 1) / size();
        const UnevenBlocks blocks{{values.data, block, block, values.dtype, values.device},
                                  values.count};
        exchange_for_sum(operation, blocks, scratch);
        operation.sum = values.part(std::min(rank() * block, values.count), blocks.count(rank()));
        operation.gather_after_sum = true;
        operation.gather_blocks = blocks.blocks;
        operation.gather_total = values.count;
    });
}

Handle MpiCommunicator::broadcast(TypedSpan values, int root, int channel) {
    const Call call{
        .kind = "broadcast", .count = values.count, .type = name_of(values.dtype), .root = root};
    return launch(channel, call, [this, values, root](Operation& operation) {
        if (rank() != root) {
            post_receive(operation, root, values.data, values.bytes());
            return;
        }
        for (int distance = 1; distance < size(); ++distance) {
            post_send(operation, (root + distance) % size(), values.data, values.bytes());
        }
    });
}

bool MpiCommunicator::messages_complete(Operation& operation) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(operation.requests.size()), operation.requests.data(),
                          &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    return done != 0;
}

/// Goes as far as messages have arrived; whether that is the end.
bool MpiCommunicator::advance(Operation& operation) {
    if (operation.complete) return true;
    if (!operation.comparison.done()) return false;
    if (operation.post) std::exchange(operation.post, nullptr)(operation);
    if (!messages_complete(operation)) return false;
    operation.requests.clear();
    operation.peers.clear();
    if (operation.sum.count > 0) {
        kernels::tree_sum(operation.sum, operation.sources, operation.source_type);
        operation.sum = {};
    }
    if (std::exchange(operation.gather_after_sum, false)) {
        const UnevenBlocks blocks{operation.gather_blocks, operation.gather_total};
        for (int peer = 0; peer < size(); ++peer) {
            if (peer == rank()) continue;
            post_receive(operation, peer, blocks.blocks.block(peer), blocks.bytes(peer));
            post_send(operation, peer, blocks.blocks.block(rank()), blocks.bytes(rank()));
        }
        return advance(operation);
    }
    operation.complete = true;
    group_.ledger().end(operation.track, operation.call, operation.begun_s);
    return true;
}

bool MpiCommunicator::advance_all() {
    bool under_way = false;
    for (const auto& operation : operations_) {
        if (operation->active && !advance(*operation)) under_way = true;
    }
    return under_way;
}

bool MpiCommunicator::ready(std::int64_t id) {
    return advance(*operations_[static_cast<std::size_t>(id)]);
}

Wait MpiCommunicator::wait_of(const Operation& operation) const {
    Wait wait{operation.track, operation.sequence, operation.call.describe()};
    for (std::size_t i = 0; i < operation.requests.size(); ++i) {
        int done = 0;
        MPI_Request_get_status(operation.requests[i], &done, MPI_STATUS_IGNORE);
        if (done == 0)
            wait.missing.push_back(group_.members()[static_cast<std::size_t>(operation.peers[i])]);
    }
    std::ranges::sort(wait.missing);
    wait.missing.erase(std::ranges::unique(wait.missing).begin(), wait.missing.end());
    return wait;
}

void MpiCommunicator::wait(std::int64_t id) {
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    ensure(operation.active, "a collective is waited for once");
    if (!advance(operation)) {
        Waiter waiter(group_.ledger(), group_.timeout_s(),
                      [this, &operation] { return wait_of(operation); });
        do {
            progress_.advance();
            waiter.pause();
        } while (!advance(operation));
    }
    operation.active = false;
}

}  // namespace fullshard::comm
