#include "base/clock.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/agree.h"
#include "comm/node_arena.h"
#include "comm/shared_memory.h"
#include "comm/waiter.h"
#include "doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace fullshard::doctor {

namespace {

constexpr std::int64_t kArenaBytes = std::int64_t{64} << 20;

/// The number that a rank writes at place `index` of its part.
std::uint64_t pattern(int rank, std::int64_t index) {
    return mix(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(index));
}

std::span<std::uint64_t> words_of(std::span<std::byte> memory) {
    return {reinterpret_cast<std::uint64_t*>(memory.data()), memory.size() / sizeof(std::uint64_t)};
}

/// Each rank writes its part of the arena and reads all others'.
void exercise(comm::NodeArena& arena, const comm::Group& host) {
    const auto words = words_of(arena.memory());
    const auto part = std::ssize(words) / host.size();
    for (std::int64_t i = 0; i < part; ++i)
        words[static_cast<std::size_t>(host.rank() * part + i)] = pattern(host.rank(), i);
    arena.post(0);
    arena.wait(0, 1, [] { return std::string("a rank of the node to write the arena"); });
    for (int rank = 0; rank < host.size(); ++rank) {
        for (std::int64_t i = 0; i < part; ++i) {
            if (words[static_cast<std::size_t>(rank * part + i)] == pattern(rank, i)) continue;
            throw RunError(
                fmt::format("does not see what local rank {} wrote {} bytes into the node's arena",
                            rank, (rank * part + i) * std::int64_t{sizeof(std::uint64_t)}));
        }
    }
}

}  // namespace

Findings check_shared_memory(const Subject& subject) {
    constexpr std::int64_t kUsual = std::int64_t{1} << 30;
    const std::optional<Needs>& needs = subject.request.needs;
    std::array<std::int64_t, 1> needed{needs ? needs->shared_bytes : 0};
    subject.host.all_reduce(needed, comm::Reduction::kSum);
    const std::optional<comm::SharedMemory> memory = comm::shared_memory();
    // Hosts where Open MPI takes its session folder have an ordinary disk for it.
    const bool counts = memory && subject.host.size() > 1;
    const std::array<std::int64_t, 3> mine{counts ? memory->size : -1, counts ? memory->free : 0,
                                           needed[0]};
    std::vector<std::int64_t> all(3 * static_cast<std::size_t>(subject.world().size()));
    subject.world().all_gather(mine, all);
    const std::vector<std::string> folders =
        subject.world().all_gather(memory ? memory->folder : "");
    const std::vector<std::string> names = subject.world().all_gather(comm::process_name());
    std::optional<std::size_t> worst;
    for (std::size_t rank = 0; rank < folders.size(); ++rank) {
        const auto spare = [&](std::size_t i) { return all[3 * i + 1] - all[3 * i + 2]; };
        if (all[3 * rank] < 0) continue;
        if (!worst || spare(rank) < spare(*worst)) worst = rank;
    }
    if (!worst) return {fine("shared memory", "not used: one rank a node")};
    const std::int64_t size = all[3 * *worst], free = all[3 * *worst + 1];
    const std::string measured = fmt::format("{} free of {} in {}, {}", size_text(free),
                                             size_text(size), folders[*worst], names[*worst]);
    const std::string remedy = fmt::format(
        "mount -o remount,size=50% {0} (containers: --shm-size=8g, or bind the host's {0}), or set "
        "comm.node_shared = off",
        folders[*worst]);
    if (!needs) {
        const std::string required = "1 GiB for models of usual sizes; name a deck to know";
        if (free >= kUsual) return {fine("shared memory", measured, required)};
        return {warning("shared memory", measured, required, remedy)};
    }
    const std::string required = size_text(all[3 * *worst + 2]) + " by the deck";
    if (free >= all[3 * *worst + 2]) return {fine("shared memory", measured, required)};
    return {failure("shared memory", measured, required, remedy)};
}

Findings check_arena(const Subject& subject) {
    comm::Progress progress;
    std::optional<comm::NodeArena> arena;
    const double begin = now_seconds();
    comm::agree(subject.world(), [&] { arena.emplace(subject.host, kArenaBytes, 1, progress); });
    comm::agree(subject.world(), [&] { exercise(*arena, subject.host); });
    std::array<double, 1> seconds{now_seconds() - begin};
    subject.world().all_reduce(seconds, comm::Reduction::kMax);
    return {fine("node arena", fmt::format("{} made, written and read by all ranks in {}",
                                           size_text(kArenaBytes), time_text(seconds[0])))};
}

}  // namespace fullshard::doctor
