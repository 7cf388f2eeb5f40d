// The exact sum of squares: windows of threads, bins of a block, bins of the caller.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launches.h"
#include "kernels/elements/numbers.h"
#include "kernels/elements/packets.h"
#include "kernels/elements/square_window.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fullshard::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;
// stream_kernels.h allows 2^18 calls: 2^12 blocks add less than 2^32 each to a bin of 62 bits.
constexpr std::int64_t kMostBlocks = 4096;
constexpr unsigned kAllLanes = 0xffffffff;

/// Bins of 64 bits in two halves, since shared memory adds 32 bits at once.
struct BlockBins {
    std::uint32_t low[SquareSum::kBins];
    std::uint32_t high[SquareSum::kBins];

    __device__ void add(std::uint32_t bin, std::uint32_t amount) {
        const std::uint32_t before = atomicAdd(&low[bin], amount);
        if (before + amount < before) atomicAdd(&high[bin], 1u);
    }
};

/// Adds the windows of a warp to the block's bins: one lane for all.
__device__ void add_warp(const SquareWindow& window, BlockBins& bins) {
    const std::uint32_t first = __reduce_min_sync(kAllLanes, window.first_bin());
    const std::uint32_t end =
        __reduce_max_sync(kAllLanes, window.first_bin()) + SquareWindow::kDigits;
    for (std::uint32_t bin = first; bin < end; ++bin) {
        const std::uint32_t digit = window.digit(bin);
        // 32 halves of 16 bits fit into 32 bits.
        const std::uint32_t low = __reduce_add_sync(kAllLanes, digit & 0xffff);
        const std::uint32_t high = __reduce_add_sync(kAllLanes, digit >> 16);
        if (threadIdx.x % warpSize != 0) continue;
        const std::uint64_t sum = low + (std::uint64_t{high} << 16);
        if (sum == 0) continue;
        bins.add(bin, static_cast<std::uint32_t>(sum));
        if (sum >> 32 != 0) bins.add(bin + 1, static_cast<std::uint32_t>(sum >> 32));
    }
}

/// Adds the block's bins to the caller's, each below 2^32 but the last one and the counts.
__device__ void add_block(const BlockBins& bins, std::int64_t* out) {
    std::uint64_t carry = 0;
    for (std::uint32_t bin = 0; bin < SquareSum::kBins; ++bin) {
        if (bin == SquareSum::kWeightBins) carry = 0;
        std::uint64_t sum = (std::uint64_t{bins.high[bin]} << 32 | bins.low[bin]) + carry;
        if (bin + 1 < SquareSum::kWeightBins) {
            carry = sum >> 32;
            sum &= 0xffffffff;
        }
        // Signed and unsigned sums have equal bits.
        if (sum != 0) atomicAdd(reinterpret_cast<unsigned long long*>(out + bin), sum);
    }
}

template <typename T>
struct AddSquares {
    const T* values;
    SquareWindow& window;
    BlockBins& bins;

    template <std::size_t kCount>
    __device__ __forceinline__ void at(std::int64_t i) const {
        const auto add_to_bin = [this](std::uint32_t bin, std::uint32_t amount) {
            bins.add(bin, amount);
        };
        const auto packet = load<kCount>(values + i);
#pragma unroll
        for (std::size_t k = 0; k < kCount; ++k) window.add(to_float(packet.values[k]), add_to_bin);
    }
};

template <std::size_t kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    sum_squares(PacketCut cut, const T* values, std::int64_t* out) {
    __shared__ BlockBins bins;
    for (std::uint32_t bin = threadIdx.x; bin < SquareSum::kBins; bin += kThreads)
        bins.low[bin] = bins.high[bin] = 0;
    __syncthreads();

    const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
    SquareWindow window;
    if (thread < cut.packets) {
        float largest = 0.0f;
        const auto packet = load<kWidth>(values + cut.packet(thread));
#pragma unroll
        for (std::size_t k = 0; k < kWidth; ++k)
            largest = std::fmax(largest, std::fabs(to_float(packet.values[k])));
        window.place(largest);
    }
    AddSquares<T> body{values, window, bins};
    go_over<kWidth>(cut, thread, std::int64_t{gridDim.x} * kThreads, body);
    add_warp(window, bins);
    __syncthreads();
    if (threadIdx.x == 0) add_block(bins, out);
}

}  // namespace

void launch_square_sum(TypedSpan values, TypedSpan bins, const Launch& launch) {
    if (values.count == 0) return;
    with_elements(values, [&]<typename T>(T* data) {
        constexpr std::size_t kWidth = kPacketElements<T>;
        const PacketCut cut = cut_into_packets(values.count, kWidth, {{data, sizeof(T)}});
        const std::int64_t threads = std::max(cut.packets, cut.singles());
        const std::int64_t blocks =
            std::min({(threads + kThreads - 1) / kThreads, kMostBlocks,
                      std::int64_t{launch.multiprocessors} * kBlocksPerMultiprocessor});
        sum_squares<kWidth><<<static_cast<unsigned>(blocks), kThreads, 0, launch.stream>>>(
            cut, data, bins.as<std::int64_t>().data());
    });
}

}  // namespace fullshard::kernels
