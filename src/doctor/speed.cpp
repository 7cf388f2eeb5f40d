#include "doctor/speed.h"

#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "comm/mpi_communicator.h"
#include "comm/waiter.h"
#include "doctor/checks.h"
#include "doctor/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace fullshard::doctor {

namespace {

constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kReduceScatter,
                                       Collective::kAllReduce, Collective::kBroadcast};
constexpr double kFarBehind = 3.0;

double median_of(std::span<const double> values) {
    std::vector<double> sorted(values.begin(), values.end());
    const auto middle = sorted.begin() + (std::ssize(sorted) - 1) / 2;
    std::ranges::nth_element(sorted, middle);
    return *middle;
}

/// Elements (fp32) that divide into equal blocks, about `bytes` together.
std::int64_t elements(std::int64_t bytes, int ranks) {
    constexpr std::int64_t kLeastBlock = 16;
    return std::max(bytes / 4 / ranks, kLeastBlock) * ranks;
}

struct Buffers {
    explicit Buffers(std::int64_t count) : values(count), scratch(count), out(count) {}
    AlignedBuffer values, scratch, out;
};

comm::Handle begin(Collective collective, comm::Communicator& communicator,
                   const Buffers& buffers) {
    const int ranks = communicator.size();
    const TypedSpan values = buffers.values.typed();
    const RankBlocks blocks = adjacent_blocks(values, ranks);
    switch (collective) {
        case Collective::kAllGather:
            return communicator.all_gather(blocks, 0);
        case Collective::kReduceScatter:
            return communicator.reduce_scatter(blocks,
                                               buffers.out.typed().part(0, blocks.block_count),
                                               buffers.scratch.typed(), 0);
        case Collective::kAllReduce:
            return communicator.all_reduce(values, buffers.scratch.typed(), 0);
        case Collective::kBroadcast:
            break;
    }
    return communicator.broadcast(values, 0, 0);
}

/// Seconds for one of `repeats` that follow each other, as nccl-tests measures: of the slowest rank
/// of each rank's group, in the world's order. All groups run at the same time.
std::vector<double> times(const Subject& subject, Collective collective, const comm::Group& group,
                          comm::Communicator& communicator, std::int64_t bytes, int repeats) {
    const Buffers buffers(elements(bytes, communicator.size()));
    begin(collective, communicator, buffers).wait();  // new connections, fresh memory
    subject.world().barrier();
    const double start = now_seconds();
    for (int repeat = 0; repeat < repeats; ++repeat)
        begin(collective, communicator, buffers).wait();
    std::array<double, 1> seconds{(now_seconds() - start) / repeats};
    group.all_reduce(seconds, comm::Reduction::kMax);
    std::vector<double> all(static_cast<std::size_t>(subject.world().size()));
    subject.world().all_gather(seconds, all);
    return all;
}

Finding measure(const Subject& subject, Collective collective, const NamedGroup& named,
                comm::Communicator& communicator, std::span<const std::string> processes) {
    constexpr std::int64_t kSmall = 1024, kLarge = std::int64_t{8} << 20;
    const int ranks = named.group.size();
    const auto small = times(subject, collective, named.group, communicator, kSmall, 50);
    const auto large = times(subject, collective, named.group, communicator, kLarge, 4);
    const double seconds = *std::ranges::max_element(large);
    const double algbw = static_cast<double>(4 * elements(kLarge, ranks)) / seconds * 1e-9;
    std::string measured = fmt::format(
        "{} of {} ranks: {} in {}, algbw {:.2f}, busbw {:.2f} GB/s; small ones {}", named.name,
        ranks, size_text(4 * elements(kLarge, ranks)), time_text(seconds), algbw,
        algbw * bus_factor(collective, ranks), time_text(*std::ranges::max_element(small)));
    const std::string check(name_of(collective));
    const auto late = straggler(large);
    if (!late) return fine(check, measured);
    return warning(
        check,
        fmt::format("{}; the group of {} takes {:.0f} times the median", measured, processes[*late],
                    large[*late] / median_of(large)),
        fmt::format("at most {:.0f} times", kFarBehind),
        "look for other jobs on that node; srun --exclude or mpirun --host leaves it out");
}

}  // namespace

std::string_view name_of(Collective collective) {
    switch (collective) {
        case Collective::kAllGather:
            return "all_gather";
        case Collective::kReduceScatter:
            return "reduce_scatter";
        case Collective::kAllReduce:
            return "all_reduce";
        case Collective::kBroadcast:
            break;
    }
    return "broadcast";
}

double bus_factor(Collective collective, int ranks) {
    if (collective == Collective::kBroadcast) return 1.0;
    const double others = static_cast<double>(ranks - 1) / ranks;
    return collective == Collective::kAllReduce ? 2.0 * others : others;
}

std::optional<std::size_t> straggler(std::span<const double> seconds) {
    const auto worst = std::ranges::max_element(seconds);
    if (worst == seconds.end() || *worst <= kFarBehind * median_of(seconds)) return std::nullopt;
    return static_cast<std::size_t>(worst - seconds.begin());
}

Findings check_speed(const Subject& subject) {
    if (subject.world().size() == 1) return {fine("collectives", "not used: one rank")};
    const std::vector<std::string> processes = subject.world().all_gather(comm::process_name());
    Findings findings;
    for (const NamedGroup& named : groups_of(subject)) {
        comm::Progress progress;
        comm::MpiCommunicator communicator(named.group, progress);
        for (const Collective collective : kCollectives)
            findings.push_back(measure(subject, collective, named, communicator, processes));
    }
    return findings;
}

}  // namespace fullshard::doctor
