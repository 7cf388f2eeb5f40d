#include "kernels/host_stream_kernels.h"

#include "kernels/cast.h"
#include "kernels/cross_entropy.h"
#include "kernels/elements/stochastic_rounding.h"
#include "kernels/ordered_sum.h"
#include "kernels/stream_checks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

namespace fullshard::kernels {
namespace {

constexpr std::int64_t kBlock = 512;

/// Calls `work(block of floats, its first element)` for the values of `span` in their order.
template <typename Work>
void for_each_widened_block(TypedSpan span, const Work& work) {
    std::array<float, kBlock> block;
    for (std::int64_t begin = 0; begin < span.count; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, span.count - begin);
        const auto floats = std::span(block).first(static_cast<std::size_t>(count));
        widen(span.part(begin, count), floats);
        work(floats, begin);
    }
}

void scale_in_place(TypedSpan values, float factor) {
    for_each_widened_block(values, [&](std::span<float> floats, std::int64_t begin) {
        for (float& value : floats) value *= factor;
        narrow(floats, values.part(begin, static_cast<std::int64_t>(floats.size())));
    });
}

void add_squares(TypedSpan values, std::span<std::int64_t> bins) {
    SquareSum sum;
    if (values.dtype == DType::kFloat32) {
        sum.add(values.as<float>());
    } else {
        for_each_widened_block(values,
                               [&](std::span<float> floats, std::int64_t) { sum.add(floats); });
    }
    for (std::size_t i = 0; i < bins.size(); ++i) bins[i] += sum.bins()[i];
}

void copy_stochastic(std::span<const float> param, std::span<BFloat16> copy,
                     const StochasticRounding& rounding) {
    const auto first = static_cast<std::uint64_t>(rounding.first_element);
    for (std::size_t i = 0; i < param.size(); ++i)
        copy[i] = round_stochastic(param[i], rounding_bits<1>(rounding.key, first + i)[0]);
}

float loss_and_gradient(std::span<float> logits, std::int64_t target, float factor) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    if (target < 0 || target >= static_cast<std::int64_t>(logits.size())) {
        const float everywhere = target < 0 ? 0.0f : kNan;
        std::ranges::fill(logits, everywhere);
        return everywhere;
    }
    const float log_sum = log_sum_exp(logits);
    const float loss = log_sum - logits[static_cast<std::size_t>(target)];
    cross_entropy_gradient(logits, log_sum, target, factor);
    return loss;
}

void cross_entropy_of_rows(const CrossEntropyRows& rows, float factor) {
    const auto targets = rows.targets.as<std::int64_t>();
    const auto losses = rows.losses.as<float>();
    std::vector<float> logits(static_cast<std::size_t>(rows.classes));
    for (std::size_t row = 0; row < losses.size(); ++row) {
        const TypedSpan memory =
            rows.logits.part(static_cast<std::int64_t>(row) * rows.row_stride, rows.classes);
        widen(memory, logits);
        losses[row] = loss_and_gradient(logits, targets[row], factor);
        narrow(logits, memory);
    }
}

}  // namespace

void HostKernels::convert(TypedSpan from, TypedSpan to, device::Stream& stream) const {
    check_convert(from, to, DeviceKind::kHost);
    stream.run({.name = "convert", .reads = {&from, 1}, .writes = {&to, 1}},
               [=] { kernels::convert(from, to); });
}

void HostKernels::accumulate(TypedSpan from, TypedSpan sum, device::Stream& stream) const {
    check_accumulate(from, sum, DeviceKind::kHost);
    const std::array reads{from, sum};
    stream.run({.name = "accumulate", .reads = reads, .writes = {&sum, 1}},
               [=] { add_into(sum.as<float>(), from); });
}

void HostKernels::scale(TypedSpan values, double factor, device::Stream& stream) const {
    check_scale(values, DeviceKind::kHost);
    stream.run({.name = "scale", .reads = {&values, 1}, .writes = {&values, 1}},
               [=] { scale_in_place(values, static_cast<float>(factor)); });
}

void HostKernels::square_sum(TypedSpan values, TypedSpan bins, device::Stream& stream) const {
    check_square_sum(values, bins, DeviceKind::kHost);
    const std::array reads{values, bins};
    stream.run({.name = "square_sum", .reads = reads, .writes = {&bins, 1}},
               [=] { add_squares(values, bins.as<std::int64_t>()); });
}

void HostKernels::adamw_update(const AdamWMemory& memory, const AdamWScalars& scalars,
                               std::optional<StochasticRounding> stochastic,
                               device::Stream& stream) const {
    check_adamw_update(memory, stochastic, DeviceKind::kHost);
    const auto& [param, gradient, first_moment, second_moment, copy] = memory;
    const std::array reads{param, gradient, first_moment, second_moment};
    const std::array writes{param, first_moment, second_moment, copy};
    const auto written = std::span(writes).first(copy.count == 0 ? 3 : 4);
    stream.run({.name = "adamw_update", .reads = reads, .writes = written}, [=] {
        const auto params = memory.param.as<float>();
        kernels::adamw_update(params, memory.gradient.as<float>(), memory.first_moment.as<float>(),
                              memory.second_moment.as<float>(), scalars);
        if (memory.copy.count == 0) return;
        if (stochastic) {
            copy_stochastic(params, memory.copy.as<BFloat16>(), *stochastic);
        } else {
            narrow(params, memory.copy);
        }
    });
}

void HostKernels::cross_entropy(const CrossEntropyRows& rows, float factor,
                                device::Stream& stream) const {
    check_cross_entropy(rows, DeviceKind::kHost);
    const std::array reads{rows.logits, rows.targets};
    const std::array writes{rows.logits, rows.losses};
    stream.run({.name = "cross_entropy", .reads = reads, .writes = writes},
               [=] { cross_entropy_of_rows(rows, factor); });
}

}  // namespace fullshard::kernels
