// Memory that all ranks of a node see, and the counters by which they take turns in it.
#pragma once

#include "comm/group.h"
#include "comm/progress.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace fullshard::comm {

/// One shared window for a node, allocated once (many small windows exhaust communicators). A group
/// of one rank gets private memory by the same interface.
///
/// Beside the memory there are `channels` counters per rank. Only their owner increments them; a
/// rank waits until every rank's counter of a channel has reached a value. Incrementing releases
/// and waiting acquires: what a rank wrote before `post` is visible to those who waited for it.
class NodeArena {
  public:
    /// Collective over `node`. Throws RunError on every rank when the node's shared memory has too
    /// little room (using a full one would be a SIGBUS later).
    /// `progress` advances while a rank waits and outlives the arena.
    NodeArena(const Group& node, std::int64_t bytes, std::int64_t channels, Progress& progress);
    ~NodeArena();
    NodeArena(const NodeArena&) = delete;
    NodeArena& operator=(const NodeArena&) = delete;

    /// The memory, zeroed, aligned to a page; the same bytes on every rank of the node.
    std::span<std::byte> memory() const { return memory_; }
    /// Bytes for counters, beside `memory()`.
    std::int64_t counter_bytes() const;

    /// Increments this rank's counter; never waits.
    void post(std::int64_t channel);
    bool reached(std::int64_t channel, std::uint64_t value) const;
    /// Throws TimeoutError after the group's deadline; `awaited` then says what for.
    void wait(std::int64_t channel, std::uint64_t value,
              const std::function<std::string()>& awaited) const;

  private:
    class Window;
    std::uint64_t* counter(int rank, std::int64_t channel) const;
    bool reached(int rank, std::int64_t channel, std::uint64_t value) const;

    Group node_;
    int rank_;
    int size_;
    Progress& progress_;
    std::int64_t channels_;
    std::int64_t counters_per_rank_;  ///< padded so that ranks do not write into one cache line
    std::unique_ptr<Window> window_;
    std::uint64_t* counters_ = nullptr;
    std::span<std::byte> memory_;
};

}  // namespace fullshard::comm
