// Kernels in which each element depends on its own index alone.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launches.h"
#include "kernels/elements/elementwise.h"

#include <algorithm>
#include <cstdint>

namespace fullshard::kernels {
namespace {

constexpr int kThreads = 256;
// Enough to fill a multiprocessor (2048 threads).
constexpr int kBlocksPerMultiprocessor = 2048 / kThreads;
// Leaves a thread 64 registers, so that AdamW keeps all its operands in them.
constexpr int kFewestBlocks = 4;

template <std::size_t kWidth, typename Body>
__global__ void __launch_bounds__(kThreads, kFewestBlocks) each_packet(PacketCut cut, Body body) {
    const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    go_over<kWidth>(cut, thread, std::int64_t{gridDim.x} * kThreads, body);
}

/// Runs `body` on elements [0, count), in packets of kWidth where the operands allow it.
template <std::size_t kWidth, typename Body>
void launch_each(std::int64_t count, std::initializer_list<Operand> operands, const Body& body,
                 const Launch& launch) {
    if (count == 0) return;
    const PacketCut cut = cut_into_packets(count, kWidth, operands);
    const std::int64_t threads = std::max(cut.packets, cut.singles());
    const std::int64_t blocks =
        std::min<std::int64_t>((threads + kThreads - 1) / kThreads,
                               std::int64_t{launch.multiprocessors} * kBlocksPerMultiprocessor);
    each_packet<kWidth><<<static_cast<unsigned>(blocks), kThreads, 0, launch.stream>>>(cut, body);
}

template <typename T>
Operand operand(const T* data) {
    return {data, sizeof(T)};
}
Operand operand(const NoCopy*) {
    return {};
}

template <typename Copy, Rounding kRounding>
void launch_update(const AdamWMemory& memory, const AdamWScalars& scalars, Copy* copy,
                   const StochasticRounding& rounding, const Launch& launch) {
    const AdamWBody<Copy, kRounding> body{
        .param = memory.param.as<float>().data(),
        .gradient = memory.gradient.as<float>().data(),
        .first_moment = memory.first_moment.as<float>().data(),
        .second_moment = memory.second_moment.as<float>().data(),
        .scalars = scalars,
        .copy = copy,
        .key = rounding.key,
        .first_element = static_cast<std::uint64_t>(rounding.first_element)};
    launch_each<kPacketElements<float>>(
        memory.param.count,
        {operand(body.param), operand(body.gradient), operand(body.first_moment),
         operand(body.second_moment), operand(copy)},
        body, launch);
}

}  // namespace

void launch_convert(TypedSpan from, TypedSpan to, const Launch& launch) {
    with_elements(from, [&]<typename From>(From* source) {
        with_elements(to, [&]<typename To>(To* out) {
            launch_each<kPacketElements<From, To>>(from.count, {operand(source), operand(out)},
                                                   ConvertBody<From, To>{source, out}, launch);
        });
    });
}

void launch_accumulate(TypedSpan from, TypedSpan sum, const Launch& launch) {
    float* const out = sum.as<float>().data();
    with_elements(from, [&]<typename From>(From* source) {
        launch_each<kPacketElements<From, float>>(from.count, {operand(source), operand(out)},
                                                  AccumulateBody<From>{source, out}, launch);
    });
}

void launch_scale(TypedSpan values, float factor, const Launch& launch) {
    with_elements(values, [&]<typename T>(T* data) {
        launch_each<kPacketElements<T>>(values.count, {operand(data)}, ScaleBody<T>{data, factor},
                                        launch);
    });
}

void launch_adamw_update(const AdamWMemory& memory, const AdamWScalars& scalars,
                         const std::optional<StochasticRounding>& stochastic,
                         const Launch& launch) {
    if (stochastic) {
        return launch_update<BFloat16, Rounding::kStochastic>(
            memory, scalars, memory.copy.as<BFloat16>().data(), *stochastic, launch);
    }
    if (memory.copy.count == 0) {
        return launch_update<NoCopy, Rounding::kNearest>(memory, scalars, nullptr, {}, launch);
    }
    with_elements(memory.copy, [&]<typename Copy>(Copy* copy) {
        launch_update<Copy, Rounding::kNearest>(memory, scalars, copy, {}, launch);
    });
}

}  // namespace fullshard::kernels
