#include "micro/streams.h"

#include "base/error.h"
#include "kernels/cpu/simd_clones.h"
#include "kernels/cpu/streaming_store.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fullshard::micro {

namespace {

using kernels::finish_streaming;
using kernels::store_past_caches;
using Vector = kernels::StreamedFloats;
constexpr std::size_t kWidth = 4;
constexpr std::size_t kLine = 16;  // elements of a cache line, which is written as a whole

Vector load(const float* values) {
    Vector vector;
    std::memcpy(&vector, values, sizeof vector);
    return vector;
}

FULLSHARD_SIMD_CLONES
void plain_triad(float* __restrict out, const float* __restrict a, const float* __restrict b,
                 float factor, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out[i] = a[i] + factor * b[i];
}

void require_lines(std::span<const float> out, std::size_t source) {
    ensure(reinterpret_cast<std::uintptr_t>(out.data()) % sizeof(Vector) == 0 &&
               out.size() % kLine == 0 && source == out.size(),
           "streams are whole cache lines of equal number");
}

}  // namespace

void triad(std::span<float> out, std::span<const float> a, std::span<const float> b, float factor) {
    ensure(a.size() == out.size() && b.size() == out.size(), "streams are of equal length");
    plain_triad(out.data(), a.data(), b.data(), factor, out.size());
}

void streaming_triad(std::span<float> out, std::span<const float> a, std::span<const float> b,
                     float factor) {
    require_lines(out, a.size());
    require_lines(out, b.size());
    for (std::size_t i = 0; i < out.size(); i += kLine) {
        for (std::size_t k = i; k < i + kLine; k += kWidth)
            store_past_caches(&out[k], load(&a[k]) + factor * load(&b[k]));
    }
    finish_streaming();
}

void streaming_copy(std::span<float> out, std::span<const float> a) {
    require_lines(out, a.size());
    for (std::size_t i = 0; i < out.size(); i += kLine) {
        for (std::size_t k = i; k < i + kLine; k += kWidth) store_past_caches(&out[k], load(&a[k]));
    }
    finish_streaming();
}

float read_all(std::span<const float> values) {
    constexpr std::size_t kSums = 8;  // as many loads as fill the pipeline of additions
    Vector sums[kSums] = {};
    std::size_t i = 0;
    for (; i + kSums * kWidth <= values.size(); i += kSums * kWidth) {
        for (std::size_t k = 0; k < kSums; ++k) sums[k] += load(&values[i + k * kWidth]);
    }
    float total = 0;
    for (; i < values.size(); ++i) total += values[i];
    for (const Vector& sum : sums) total += sum[0] + sum[1] + sum[2] + sum[3];
    return total;
}

}  // namespace fullshard::micro
