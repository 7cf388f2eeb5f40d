// Softmax cross-entropy, forward and backward: one block of threads a row.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/launches.h"
#include "kernels/elements/numbers.h"
#include "kernels/elements/packets.h"
#include "kernels/elements/softmax.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace fullshard::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kBlocksPerMultiprocessor = 2048 / kThreads;
constexpr unsigned kAllLanes = 0xffffffff;

/// Elements of a row that a thread takes at once. Which thread takes an element depends on nothing
/// but the element's index, so bits depend on neither type nor address.
constexpr std::int64_t kWidth = 8;

/// A row of logits whose packets are aligned, or are not.
template <typename T, bool kAligned>
class Row {
  public:
    __device__ Row(T* logits, std::int64_t classes) : logits_(logits), classes_(classes) {}

    /// Elements [i, i + kWidth); what is beyond the row counts as -infinity.
    __device__ __forceinline__ void read(std::int64_t i, float (&values)[kWidth]) const {
        if (kAligned && i + kWidth <= classes_) {
            const auto packet = load<kWidth>(logits_ + i);
            for (int k = 0; k < kWidth; ++k) values[k] = to_float(packet.values[k]);
        } else {
            for (int k = 0; k < kWidth; ++k) {
                values[k] = i + k < classes_ ? to_float(logits_[i + k])
                                             : -std::numeric_limits<float>::infinity();
            }
        }
    }
    __device__ __forceinline__ void write(std::int64_t i, const float (&values)[kWidth]) const {
        if (kAligned && i + kWidth <= classes_) {
            Packet<T, kWidth> packet;
            for (int k = 0; k < kWidth; ++k) packet.values[k] = from_float<T>(values[k]);
            store(logits_ + i, packet);
        } else {
            for (int k = 0; k < kWidth; ++k)
                if (i + k < classes_) logits_[i + k] = from_float<T>(values[k]);
        }
    }

    __device__ void fill(float value) const {
        float values[kWidth];
        for (float& v : values) v = value;
        for (std::int64_t i = first(); i < classes_; i += kStep) write(i, values);
    }

    __device__ static std::int64_t first() { return std::int64_t{threadIdx.x} * kWidth; }
    static constexpr std::int64_t kStep = kThreads * kWidth;

  private:
    T* logits_;
    std::int64_t classes_;
};

/// The sum of all lanes of a warp, in each lane.
__device__ SoftmaxSum add_lanes(SoftmaxSum mine) {
    for (int distance = 16; distance > 0; distance /= 2) {
        const SoftmaxSum other{__shfl_xor_sync(kAllLanes, mine.largest, distance),
                               __shfl_xor_sync(kAllLanes, mine.sum, distance)};
        mine.add(other);
    }
    return mine;
}

/// The sum of all threads of the block, in each of them. `of_warps` is shared memory.
__device__ SoftmaxSum add_threads(SoftmaxSum mine, SoftmaxSum* of_warps) {
    mine = add_lanes(mine);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
    __syncthreads();
    SoftmaxSum total = of_warps[0];
    for (int warp = 1; warp < kWarps; ++warp) total.add(of_warps[warp]);
    // The next row's sums may come only when all have read these.
    __syncthreads();
    return total;
}

template <typename T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    cross_entropy(T* logits, std::int64_t classes, std::int64_t stride, const std::int64_t* targets,
                  float* losses, std::int64_t rows, float factor) {
    __shared__ float of_warps_memory[2 * kWarps];
    auto* const of_warps = reinterpret_cast<SoftmaxSum*>(of_warps_memory);
    for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        T* const begin = logits + r * stride;
        const Row<T, kAligned> row(begin, classes);
        const std::int64_t target = targets[r];
        if (target < 0 || target >= classes) {
            const float everywhere = target < 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
            row.fill(everywhere);
            if (threadIdx.x == 0) losses[r] = everywhere;
            continue;
        }

        float values[kWidth];
        SoftmaxSum sum;
        for (std::int64_t i = row.first(); i < classes; i += row.kStep) {
            row.read(i, values);
            sum.add(values);
        }
        const float of_target = to_float(begin[target]);
        const float log_sum = add_threads(sum, of_warps).log_sum_exp();
        if (threadIdx.x == 0) losses[r] = log_sum - of_target;
        for (std::int64_t i = row.first(); i < classes; i += row.kStep) {
            row.read(i, values);
            for (int k = 0; k < kWidth; ++k)
                values[k] = logit_gradient(values[k], log_sum, i + k == target, factor);
            row.write(i, values);
        }
    }
}

template <typename T, bool kAligned>
void launch_rows(const CrossEntropyRows& rows, T* logits, float factor, const Launch& launch) {
    const std::int64_t blocks = std::min(
        rows.losses.count, std::int64_t{launch.multiprocessors} * kBlocksPerMultiprocessor);
    cross_entropy<T, kAligned><<<static_cast<unsigned>(blocks), kThreads, 0, launch.stream>>>(
        logits, rows.classes, rows.row_stride, rows.targets.as<std::int64_t>().data(),
        rows.losses.as<float>().data(), rows.losses.count, factor);
}

}  // namespace

void launch_cross_entropy(const CrossEntropyRows& rows, float factor, const Launch& launch) {
    if (rows.losses.count == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(rows.logits.data);
    const auto row_bytes = static_cast<std::size_t>(rows.row_stride * size_of(rows.logits.dtype));
    const bool aligned = begin % kPacketBytes == 0 && row_bytes % kPacketBytes == 0;
    with_elements(rows.logits, [&]<typename T>(T* logits) {
        if (aligned) {
            launch_rows<T, true>(rows, logits, factor, launch);
        } else {
            launch_rows<T, false>(rows, logits, factor, launch);
        }
    });
}

}  // namespace fullshard::kernels
