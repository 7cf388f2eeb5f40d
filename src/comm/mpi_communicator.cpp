#include "comm/mpi_communicator.h"

#include "base/error.h"
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
    const char* name = "";
    std::vector<MPI_Request> requests;

    // A sum follows the messages where it has elements.
    TypedSpan sum;
    std::vector<const std::byte*> sources;
    DType source_type = DType::kFloat32;
    // Set when, for an all-reduce, the gathering of the summed blocks follows the sum.
    bool gather_after_sum = false;
    RankBlocks gather_blocks;
    std::int64_t gather_total = 0;
};

MpiCommunicator::MpiCommunicator(const Group& group, Progress& progress,
                                 std::int64_t max_message_bytes)
    : group_(group),
      progress_(progress),
      max_message_bytes_(max_message_bytes),
      registration_(progress, [this] { advance_all(); }) {
    ensure(max_message_bytes > 0 && max_message_bytes < (std::int64_t{1} << 31),
           "a message's byte count fits MPI's int");
}

MpiCommunicator::~MpiCommunicator() = default;

std::int64_t MpiCommunicator::begin(int channel, const char* name) {
    auto free = std::ranges::find_if(operations_, [](const auto& op) { return !op->active; });
    if (free == operations_.end()) {
        operations_.push_back(std::make_unique<Operation>());
        free = operations_.end() - 1;
    }
    Operation& operation = **free;
    operation.active = true;
    operation.complete = false;
    operation.channel = channel;
    operation.name = name;
    operation.requests.clear();
    operation.sum = {};
    operation.gather_after_sum = false;
    return free - operations_.begin();
}

void MpiCommunicator::post_send(Operation& operation, int peer, const std::byte* data,
                                std::int64_t bytes) {
    for (std::int64_t done = 0; done < bytes; done += max_message_bytes_) {
        const int count = static_cast<int>(std::min(max_message_bytes_, bytes - done));
        check_mpi(MPI_Isend(data + done, count, MPI_BYTE, peer, operation.channel,
                            group_.impl().comm, &operation.requests.emplace_back(MPI_REQUEST_NULL)),
                  "MPI_Isend");
    }
}

void MpiCommunicator::post_receive(Operation& operation, int peer, std::byte* data,
                                   std::int64_t bytes) {
    for (std::int64_t done = 0; done < bytes; done += max_message_bytes_) {
        const int count = static_cast<int>(std::min(max_message_bytes_, bytes - done));
        check_mpi(MPI_Irecv(data + done, count, MPI_BYTE, peer, operation.channel,
                            group_.impl().comm, &operation.requests.emplace_back(MPI_REQUEST_NULL)),
                  "MPI_Irecv");
    }
    bytes_received_ += bytes;
}

Handle MpiCommunicator::all_gather(const RankBlocks& blocks, int channel) {
    const std::int64_t id = begin(channel, "all_gather");
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    for (int distance = 1; distance < size(); ++distance) {
        const int source = (rank() - distance + size()) % size();
        post_receive(operation, source, blocks.block(source), blocks.block_bytes());
    }
    for (int distance = 1; distance < size(); ++distance) {
        post_send(operation, (rank() + distance) % size(), blocks.block(rank()),
                  blocks.block_bytes());
    }
    return {*this, id};
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
    const std::int64_t id = begin(channel, "reduce_scatter");
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    exchange_for_sum(operation, {blocks, blocks.block_count * size()}, scratch);
    operation.sum = out;
    return {*this, id};
}

Handle MpiCommunicator::all_reduce(TypedSpan values, TypedSpan scratch, int channel) {
    const std::int64_t block = (values.count + size() - 1) / size();
    const UnevenBlocks blocks{{values.data, block, block, values.dtype, values.device},
                              values.count};
    const std::int64_t id = begin(channel, "all_reduce");
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    exchange_for_sum(operation, blocks, scratch);
    operation.sum = values.part(std::min(rank() * block, values.count), blocks.count(rank()));
    operation.gather_after_sum = true;
    operation.gather_blocks = blocks.blocks;
    operation.gather_total = values.count;
    return {*this, id};
}

Handle MpiCommunicator::broadcast(TypedSpan values, int root, int channel) {
    const std::int64_t id = begin(channel, "broadcast");
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    if (rank() != root) {
        post_receive(operation, root, values.data, values.bytes());
    } else {
        for (int distance = 1; distance < size(); ++distance) {
            post_send(operation, (root + distance) % size(), values.data, values.bytes());
        }
    }
    return {*this, id};
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
    if (!messages_complete(operation)) return false;
    operation.requests.clear();
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
    return true;
}

void MpiCommunicator::advance_all() {
    for (const auto& operation : operations_) {
        if (operation->active) advance(*operation);
    }
}

bool MpiCommunicator::ready(std::int64_t id) {
    return advance(*operations_[static_cast<std::size_t>(id)]);
}

void MpiCommunicator::wait(std::int64_t id) {
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    ensure(operation.active, "a collective is waited for once");
    Waiter waiter(group_.timeout_s(), [&] {
        return fmt::format("{} on channel {} among {} ranks", operation.name, operation.channel,
                           size());
    });
    while (!advance(operation)) {
        progress_.advance();
        waiter.pause();
    }
    operation.active = false;
}

}  // namespace fullshard::comm
