#include "comm/mpi_communicator.h"

#include "base/error.h"
#include "comm/mpi_detail.h"
#include "comm/waiter.h"
#include "kernels/ordered_sum.h"

#include <fmt/format.h>

#include <algorithm>

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
    int channel = 0;
    const char* name = "";
    std::vector<MPI_Request> requests;

    // Set when a sum follows the messages.
    std::span<float> sum;
    std::vector<const float*> sources;
    // Set when, for an all-reduce, the gathering of the summed blocks follows the sum.
    bool gather_after_sum = false;
    RankBlocks gather_blocks;
    std::int64_t gather_total = 0;
};

MpiCommunicator::MpiCommunicator(const Group& group, std::int64_t max_message_bytes)
    : group_(group), max_message_bytes_(max_message_bytes) {
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
    ensure(blocks.blocks.dtype == DType::kFloat32 && scratch.dtype == DType::kFloat32,
           "sums are of float32");
    const std::int64_t mine = blocks.count(rank());
    ensure(scratch.count >= (size() - 1) * mine, "scratch holds one block for each other rank");
    operation.sources.resize(static_cast<std::size_t>(size()));
    std::byte* next = scratch.data;
    for (int distance = 1; distance < size(); ++distance) {
        const int source = (rank() - distance + size()) % size();
        post_receive(operation, source, next, blocks.bytes(rank()));
        operation.sources[static_cast<std::size_t>(source)] = reinterpret_cast<const float*>(next);
        next += blocks.bytes(rank());
    }
    operation.sources[static_cast<std::size_t>(rank())] =
        reinterpret_cast<const float*>(blocks.blocks.block(rank()));
    for (int distance = 1; distance < size(); ++distance) {
        const int target = (rank() + distance) % size();
        post_send(operation, target, blocks.blocks.block(target), blocks.bytes(target));
    }
}

Handle MpiCommunicator::reduce_scatter(const RankBlocks& blocks, TypedSpan out, TypedSpan scratch,
                                       int channel) {
    ensure(out.count == blocks.block_count && out.dtype == DType::kFloat32,
           "reduce_scatter's result is one block");
    const std::int64_t id = begin(channel, "reduce_scatter");
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    exchange_for_sum(operation, {blocks, blocks.block_count * size()}, scratch);
    operation.sum = {reinterpret_cast<float*>(out.data), static_cast<std::size_t>(out.count)};
    return {*this, id};
}

Handle MpiCommunicator::all_reduce(TypedSpan values, TypedSpan scratch, int channel) {
    const std::int64_t block = (values.count + size() - 1) / size();
    const UnevenBlocks blocks{{values.data, block, block, values.dtype, values.device},
                              values.count};
    const std::int64_t id = begin(channel, "all_reduce");
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    exchange_for_sum(operation, blocks, scratch);
    operation.sum = {reinterpret_cast<float*>(blocks.blocks.block(rank())),
                     static_cast<std::size_t>(blocks.count(rank()))};
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

void MpiCommunicator::complete_messages(Operation& operation) {
    Waiter waiter(group_.timeout_s(), [&] {
        return fmt::format("{} on channel {} among {} ranks", operation.name, operation.channel,
                           size());
    });
    while (!messages_complete(operation)) waiter.pause();
    operation.requests.clear();
}

bool MpiCommunicator::ready(std::int64_t id) {
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    return messages_complete(operation) && !operation.gather_after_sum;
}

void MpiCommunicator::wait(std::int64_t id) {
    Operation& operation = *operations_[static_cast<std::size_t>(id)];
    ensure(operation.active, "a collective is waited for once");
    complete_messages(operation);
    if (!operation.sum.empty()) kernels::tree_sum(operation.sum, operation.sources);
    if (operation.gather_after_sum) {
        const UnevenBlocks blocks{operation.gather_blocks, operation.gather_total};
        for (int peer = 0; peer < size(); ++peer) {
            if (peer == rank()) continue;
            post_receive(operation, peer, blocks.blocks.block(peer), blocks.bytes(peer));
            post_send(operation, peer, blocks.blocks.block(rank()), blocks.bytes(rank()));
        }
        complete_messages(operation);
    }
    operation.active = false;
}

}  // namespace fullshard::comm
