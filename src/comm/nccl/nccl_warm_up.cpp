#include "comm/nccl/nccl_warm_up.h"

#include "base/error.h"
#include "comm/agree.h"
#include "comm/nccl/nccl_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace fullshard::comm {

namespace {

/// What is gathered, what is summed, the sum, what is broadcast.
std::int64_t bytes_for(int ranks) {
    return (2 * ranks + 2) * static_cast<std::int64_t>(sizeof(float));
}

void expect(const char* call, double got, double wanted) {
    constexpr double kRelative = 1e-5;  // far beyond the rounding of a sum of small integers
    if (std::abs(got - wanted) <= kRelative * wanted) return;
    throw RunError(fmt::format(
        "{} gives wrong numbers: {} instead of {}; NCCL's ranks are not those of MPI, or what "
        "connects the GPUs is at fault (try NCCL_NVLS_ENABLE=0)",
        call, got, wanted));
}

}  // namespace

WarmUp::WarmUp(const Group& group, ncclComm_t comm, device::Device& device)
    : rank_(group.rank()),
      size_(group.size()),
      comm_(comm),
      device_(device),
      on_device_(device.allocate("NCCL warm-up", bytes_for(size_))),
      on_host_(device.allocate("NCCL warm-up", bytes_for(size_), device::Placement::kPinnedHost)),
      stream_(device.make_stream("NCCL warm-up")),
      end_(device.make_event()) {}

std::array<WarmUp::Step, 4> WarmUp::steps() {
    float* const gathered = on_device_.typed(DType::kFloat32).as<float>().data();
    float* const addends = gathered + size_;
    float* const sum = addends + size_;
    float* const from_last = sum + 1;
    auto* const stream = static_cast<cudaStream_t>(stream_->native());
    return {
        {{"ncclAllGather",
          [=, this] {
              return ncclAllGather(gathered + rank_, gathered, 1, ncclFloat32, comm_, stream);
          }},
         {"ncclReduceScatter",
          [=, this] {
              return ncclReduceScatter(addends, sum, 1, ncclFloat32, ncclSum, comm_, stream);
          }},
         {"ncclAllReduce",
          [=, this] { return ncclAllReduce(sum, sum, 1, ncclFloat32, ncclSum, comm_, stream); }},
         {"ncclBroadcast", [=, this] {
              return ncclBroadcast(from_last, from_last, 1, ncclFloat32, size_ - 1, comm_, stream);
          }}}};
}

std::span<float> WarmUp::host_values() {
    const std::array all{on_host_.typed(DType::kFloat32)};
    device_.host_access({.name = "NCCL warm-up", .reads = all, .writes = all});
    return all[0].as<float>();
}

/// Every value is this rank's number, from 1.
void WarmUp::begin() {
    std::ranges::fill(host_values(), static_cast<float>(rank_ + 1));
    stream_->copy(on_host_.typed(DType::kFloat32), on_device_.typed(DType::kFloat32));
}

void WarmUp::end() {
    stream_->copy(on_device_.typed(DType::kFloat32), on_host_.typed(DType::kFloat32));
    stream_->record(*end_);
}

/// Gathered are 1 to n; the reduce_scatter gives n (n + 1) / 2 on every rank, and the sum of that
/// over all ranks is n times as much.
void WarmUp::compare() {
    const std::span<float> values = host_values();
    const double ranks = size_;
    for (int rank = 0; rank < size_; ++rank) {
        expect("ncclAllGather", values[static_cast<std::size_t>(rank)], rank + 1);
    }
    const auto next = static_cast<std::size_t>(2 * size_);
    expect("ncclReduceScatter with ncclAllReduce", values[next], ranks * ranks * (ranks + 1) / 2);
    expect("ncclBroadcast", values[next + 1], ranks);
}

void WarmUp::run(const Group& world, std::string_view name, double timeout_s) {
    agree(world, [&] { begin(); });
    for (const Step& step : steps()) {
        bool called = false;
        agree_done(world, fmt::format("first {} of the {}", step.name, name), timeout_s, [&] {
            if (!std::exchange(called, true)) check_nccl(step.call(), step.name);
            return settled(comm_, step.name);
        });
    }
    agree(world, [&] { end(); });
    agree_done(world, fmt::format("first collectives of the {}", name), timeout_s, [&] {
        settled(comm_, "a collective on the device");
        return end_->reached();
    });
    agree(world, [&] { compare(); });
}

}  // namespace fullshard::comm
