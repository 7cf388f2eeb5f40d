#include "optim/state_device.h"

#include "base/error.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"

#include <algorithm>
#include <utility>

namespace fullshard::optim {

TypedSpan HostState::zeros(std::int64_t count) {
    return memory_.emplace_back(count).typed();
}

void HostState::update(const kernels::AdamWMemory& memory, const kernels::AdamWScalars& scalars) {
    const std::span<float> param = memory.param.as<float>();
    kernels::adamw_update(param, memory.gradient.as<const float>(), memory.first_moment.as<float>(),
                          memory.second_moment.as<float>(), scalars);
    if (memory.copy.count > 0) kernels::narrow(param, memory.copy);
}

kernels::SquareSum HostState::square_sum(std::span<const TypedSpan> values) {
    kernels::SquareSum sum;
    for (const TypedSpan& each : values) sum.add(each.as<const float>());
    return sum;
}

void HostState::read(const TypedSpan& from, std::span<float> to) {
    ensure(from.count == std::ssize(to), "as many values are read as there is room for");
    std::ranges::copy(from.as<const float>(), to.begin());
}

void HostState::write(std::span<const float> from, const TypedSpan& to) {
    ensure(to.count == std::ssize(from), "as many values are written as there is room for");
    std::ranges::copy(from, to.as<float>().begin());
}

StreamState::StreamState(device::Device& device, device::Stream& stream,
                         const kernels::StreamKernels& kernels, WaitFor wait_for)
    : device_(device),
      stream_(stream),
      kernels_(kernels),
      wait_for_(std::move(wait_for)),
      done_(device.make_event()) {
    constexpr std::int64_t kBytes = kernels::SquareSum::kBins * size_of(DType::kInt64);
    bins_ = device.allocate("bins of a sum of squares", kBytes);
    host_bins_ =
        device.allocate("bins of a sum of squares", kBytes, device::Placement::kPinnedHost);
}

TypedSpan StreamState::zeros(std::int64_t count) {
    const device::Buffer& buffer =
        memory_.emplace_back(device_.allocate("moments", count * size_of(DType::kFloat32)));
    const TypedSpan zeros = buffer.typed(DType::kFloat32).part(0, count);
    stream_.zero(zeros);
    return zeros;
}

void StreamState::update(const kernels::AdamWMemory& memory, const kernels::AdamWScalars& scalars) {
    kernels_.adamw_update(memory, scalars, /*stochastic=*/std::nullopt, stream_);
}

void StreamState::wait_for_stream() {
    stream_.record(*done_);
    wait_for_(*done_);
}

kernels::SquareSum StreamState::square_sum(std::span<const TypedSpan> values) {
    const TypedSpan bins = bins_.typed(DType::kInt64), host = host_bins_.typed(DType::kInt64);
    stream_.zero(bins);
    for (const TypedSpan& each : values) kernels_.square_sum(each, bins, stream_);
    stream_.copy(bins, host);
    wait_for_stream();
    device_.host_access({.name = "sum of squares", .reads = {&host, 1}});
    kernels::SquareSum sum;
    std::ranges::copy(host.as<const std::int64_t>(), sum.bins().begin());
    return sum;
}

TypedSpan StreamState::staging(std::int64_t count) {
    const std::int64_t bytes = count * size_of(DType::kFloat32);
    if (staging_.bytes() < bytes) {
        staging_ = device_.allocate("staging", bytes, device::Placement::kPinnedHost);
    }
    return staging_.typed(DType::kFloat32).part(0, count);
}

void StreamState::read(const TypedSpan& from, std::span<float> to) {
    ensure(from.count == std::ssize(to), "as many values are read as there is room for");
    const TypedSpan host = staging(from.count);
    stream_.copy(from, host);
    wait_for_stream();
    device_.host_access({.name = "read of state", .reads = {&host, 1}});
    std::ranges::copy(host.as<const float>(), to.begin());
}

void StreamState::write(std::span<const float> from, const TypedSpan& to) {
    ensure(to.count == std::ssize(from), "as many values are written as there is room for");
    const TypedSpan host = staging(to.count);
    device_.host_access({.name = "write of state", .writes = {&host, 1}});
    std::ranges::copy(from, host.as<float>().begin());
    stream_.copy(host, to);
    wait_for_stream();
}

}  // namespace fullshard::optim
