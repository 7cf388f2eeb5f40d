#include "comm/node_arena.h"

#include "base/error.h"
#include "base/huge_pages.h"
#include "base/round_up.h"
#include "comm/mpi_detail.h"
#include "comm/shared_memory.h"
#include "comm/waiter.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>

namespace fullshard::comm {

namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kCacheLine = 128;  // two lines: neighbours are prefetched in pairs

std::string no_room(const std::string& folder, std::int64_t bytes) {
    return fmt::format(
        "{} has too little room for the {} MiB of the node's unsharded parameters and gradient "
        "slots; enlarge it or set comm.node_shared = off",
        folder, (bytes + (1 << 20) - 1) >> 20);
}

/// Empty when there is room, as far as the file system tells.
std::string check_shared_memory_room(std::int64_t bytes) {
    const auto memory = shared_memory();
    return !memory || memory->free >= bytes ? std::string() : no_room(memory->folder, bytes);
}

/// Touches pages for writing, so that the room is really ours: false where there is none left,
/// which a plain write would only tell by SIGBUS.
bool reserve(std::byte* begin, std::int64_t bytes) {
    if (bytes == 0) return true;
    if (madvise(begin, static_cast<std::size_t>(bytes), MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINVAL) return false;
    std::memset(begin, 0, static_cast<std::size_t>(bytes));  // kernels before 5.14
    return true;
}

}  // namespace

/// The mapping itself: a shared MPI window for several ranks, anonymous memory for one.
class NodeArena::Window {
  public:
    Window(const Group& node, std::int64_t bytes) : bytes_(bytes) {
        if (node.size() == 1) {
            void* mapped = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (mapped == MAP_FAILED) throw RunError(fmt::format("mmap of {} bytes failed", bytes));
            base_ = static_cast<std::byte*>(mapped);
            advise_huge_pages({base_, static_cast<std::size_t>(bytes)});
            return;
        }
        // Not an agreed error: it concerns one node, and the job has to end on all of them.
        const std::string problem =
            node.broadcast(node.rank() == 0 ? check_shared_memory_room(bytes) : "", 0);
        if (!problem.empty()) throw RunError(problem);
        // Rank 0 allocates all of it: one contiguous range, whatever the library's alignment is.
        void* own = nullptr;
        const auto blocking = node.impl().block_in({.kind = "MPI_Win_allocate_shared"});
        check_mpi(MPI_Win_allocate_shared(node.rank() == 0 ? bytes : 0, 1, MPI_INFO_NULL,
                                          node.impl().comm, &own, &window_),
                  "MPI_Win_allocate_shared");
        check_mpi(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
        MPI_Aint size = 0;
        int unit = 0;
        void* first = nullptr;
        check_mpi(MPI_Win_shared_query(window_, 0, &size, &unit, &first), "MPI_Win_shared_query");
        base_ = static_cast<std::byte*>(first);
        check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
    }

    ~Window() {
        if (window_ == MPI_WIN_NULL) {
            munmap(base_, static_cast<std::size_t>(bytes_));
            return;
        }
        // Freeing is collective; the library unlinked the backing file, so nothing is left behind.
        if (std::uncaught_exceptions() > 0) return;
        MPI_Win_unlock_all(window_);
        MPI_Win_free(&window_);
    }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

    std::byte* base() const { return base_; }

  private:
    std::byte* base_ = nullptr;
    std::int64_t bytes_;
    MPI_Win window_ = MPI_WIN_NULL;
};

NodeArena::NodeArena(const Group& node, std::int64_t bytes, std::int64_t channels,
                     Progress& progress)
    : node_(node),
      rank_(node.rank()),
      size_(node.size()),
      progress_(progress),
      channels_(channels),
      counters_per_rank_(round_up(channels * 8, kCacheLine) / 8) {
    const std::int64_t head = round_up(counter_bytes(), kPage);
    const std::int64_t body = round_up(bytes, kPage);
    window_ = std::make_unique<Window>(node, head + body + kPage);
    auto* base = window_->base();
    base += (kPage - reinterpret_cast<std::uintptr_t>(base) % kPage) % kPage;
    counters_ = reinterpret_cast<std::uint64_t*>(base);
    memory_ = {base + head, static_cast<std::size_t>(bytes)};
    // Each rank touches an equal part first, so that its pages are near it. New pages are zero.
    const std::int64_t pages = body / kPage;
    const std::int64_t begin = pages * rank_ / size_ * kPage;
    const std::int64_t end = pages * (rank_ + 1) / size_ * kPage;
    const bool mine =
        reserve(base + head + begin, end - begin) && (rank_ != 0 || reserve(base, head));
    std::array<std::int64_t, 1> reserved{mine ? 1 : 0};
    node.all_reduce(reserved, Reduction::kMin);
    if (reserved[0] == 0) {
        const auto memory = shared_memory();
        throw RunError(no_room(memory ? memory->folder : "shared memory", head + body));
    }
}

NodeArena::~NodeArena() = default;

std::int64_t NodeArena::counter_bytes() const {
    return size_ * counters_per_rank_ * 8;
}

std::uint64_t* NodeArena::counter(int rank, std::int64_t channel) const {
    ensure(channel >= 0 && channel < channels_, "arena channel exists");
    return counters_ + rank * counters_per_rank_ + channel;
}

void NodeArena::post(std::int64_t channel) {
    std::atomic_ref(*counter(rank_, channel)).fetch_add(1, std::memory_order_release);
}

bool NodeArena::reached(int rank, std::int64_t channel, std::uint64_t value) const {
    return std::atomic_ref(*counter(rank, channel)).load(std::memory_order_acquire) >= value;
}

bool NodeArena::reached(std::int64_t channel, std::uint64_t value) const {
    for (int rank = 0; rank < size_; ++rank) {
        if (!reached(rank, channel, value)) return false;
    }
    return true;
}

void NodeArena::wait(std::int64_t channel, std::uint64_t value,
                     const std::function<std::string()>& awaited) const {
    if (reached(channel, value)) return;
    const auto wait = [&] {
        Wait described{.what = awaited()};
        for (int rank = 0; rank < size_; ++rank) {
            if (!reached(rank, channel, value))
                described.missing.push_back(node_.members()[static_cast<std::size_t>(rank)]);
        }
        return described;
    };
    Waiter waiter(node_.ledger(), node_.timeout_s(), std::cref(wait));
    while (!reached(channel, value)) {
        progress_.advance();
        waiter.pause();
    }
}

}  // namespace fullshard::comm
