#include "doctor/single_copy.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/agree.h"
#include "comm/mpi_communicator.h"
#include "doctor/checks.h"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace fullshard::doctor {

namespace {

/// 0, or why this process may not read the memory of another one.
int read_memory_of(pid_t process, std::uintptr_t address) {
    std::uint64_t value = 0;
    const iovec here{&value, sizeof value};
    const iovec there{reinterpret_cast<void*>(address), sizeof value};
    const ssize_t count = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (count < 0) return errno;
    return count == static_cast<ssize_t>(sizeof value) ? 0 : EIO;
}

/// Between the two ranks of a host; told by the one that receives.
Transfer transfer(const comm::Group& pair) {
    Transfer found;
    const std::uint64_t secret = 1;
    const std::array<std::int64_t, 2> mine{
        ::getpid(), std::bit_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&secret))};
    std::array<std::int64_t, 4> both{};
    pair.all_gather(mine, both);
    if (pair.rank() == 1) {
        found.refused =
            read_memory_of(static_cast<pid_t>(both[0]), std::bit_cast<std::uintptr_t>(both[1]));
    }
    pair.barrier();  // `secret` lives on until then
    comm::Progress progress;
    comm::MpiCommunicator communicator(pair, progress);
    std::vector<std::int64_t> values(kTransferBytes / sizeof(std::int64_t));
    TypedSpan span;
    span.data = reinterpret_cast<std::byte*>(values.data());
    span.count = std::ssize(values);
    span.dtype = DType::kInt64;
    bool damaged = false;
    constexpr int kRepeats = 3;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
        std::ranges::fill(values, pair.rank() == 0 ? repeat + 1 : 0);
        pair.barrier();
        const double begin = now_seconds();
        communicator.broadcast(span, 0, 0).wait();
        const double seconds = now_seconds() - begin;
        // The first one meets fresh memory.
        if (repeat == 1 || seconds < found.seconds) found.seconds = seconds;
        damaged |= std::ranges::any_of(values, [&](auto value) { return value != repeat + 1; });
    }
    if (damaged) throw RunError("64 MiB from another rank of the node arrived damaged");
    return found;
}

}  // namespace

Finding grade(const Transfer& worst, bool switched_off) {
    constexpr double kSlowestSeconds = 0.64;  // 0.1 GB/s
    if (worst.seconds == 0.0) return fine("single copy", "not used: one rank a node");
    const std::string measured =
        fmt::format("{} between two ranks of a node in {} ({}), {}", size_text(kTransferBytes),
                    time_text(worst.seconds), rate_text(kTransferBytes, worst.seconds),
                    switched_off ? "copied through shared memory as you asked"
                                 : "single copy is left to the MPI library");
    if (worst.refused != 0 && !switched_off) {
        return warning("single copy",
                       fmt::format("{}, and the system forbids it: process_vm_readv says {}",
                                   measured, std::strerror(worst.refused)),
                       "permission, or the other way",
                       "export OMPI_MCA_btl_vader_single_copy_mechanism=none before the launch");
    }
    if (worst.seconds <= kSlowestSeconds) return fine("single copy", measured, "0.1 GB/s");
    return warning("single copy", measured, "0.1 GB/s",
                   switched_off
                       ? "unset OMPI_MCA_btl_vader_single_copy_mechanism and compare; else look "
                         "for other jobs on the node"
                       : "export OMPI_MCA_btl_vader_single_copy_mechanism=none and compare; else "
                         "look for other jobs on the node");
}

Findings check_single_copy(const Subject& subject) {
    const comm::Group pair =
        subject.host.split(subject.host.rank() < 2 ? 0 : -1, subject.host.rank());
    Transfer mine;
    comm::agree(subject.world(), [&] {
        if (pair.size() == 2) mine = transfer(pair);
    });
    std::array<double, 2> worst{static_cast<double>(mine.refused), mine.seconds};
    subject.world().all_reduce(worst, comm::Reduction::kMax);
    const char* mechanism = std::getenv("OMPI_MCA_btl_vader_single_copy_mechanism");
    const bool switched_off = mechanism != nullptr && std::string_view(mechanism) == "none";
    return {grade({static_cast<int>(worst[0]), worst[1]}, switched_off)};
}

}  // namespace fullshard::doctor
