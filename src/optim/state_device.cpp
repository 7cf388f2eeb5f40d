#include "optim/state_device.h"

#include "base/error.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"

#include <algorithm>

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
                         const kernels::StreamKernels& kernels, device::Staging& staging)
    : device_(device),
      stream_(stream),
      kernels_(kernels),
      staging_(staging),
      bins_(device.allocate("bins of a sum of squares",
                            kernels::SquareSum::kBins * size_of(DType::kInt64))) {}

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

kernels::SquareSum StreamState::square_sum(std::span<const TypedSpan> values) {
    const TypedSpan bins = bins_.typed(DType::kInt64);
    stream_.zero(bins);
    for (const TypedSpan& each : values) kernels_.square_sum(each, bins, stream_);
    kernels::SquareSum sum;
    staging_.read(bins, sum.bins());
    return sum;
}

void StreamState::read(const TypedSpan& from, std::span<float> to) {
    staging_.read(from, to);
}

void StreamState::write(std::span<const float> from, const TypedSpan& to) {
    staging_.write(from, to);
}

}  // namespace fullshard::optim
