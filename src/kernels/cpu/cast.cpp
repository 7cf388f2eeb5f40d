#include "kernels/cast.h"

#include "base/error.h"
#include "kernels/cpu/cast_blocks.h"
#include "kernels/cpu/simd_clones.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/half_float.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace fullshard::kernels {
namespace {

// 2 KiB of floats between two half-width types stay in the first-level cache.
constexpr std::int64_t kBlock = 512;

FULLSHARD_SIMD_CLONES
void widen_all(const BFloat16* source, float* out, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] = to_float(source[i]);
}

FULLSHARD_SIMD_CLONES
void widen_all(const Float16* source, float* out, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] = to_float(source[i]);
}

FULLSHARD_SIMD_CLONES
void narrow_all(const float* source, BFloat16* out, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] = to_bfloat16(source[i]);
}

FULLSHARD_SIMD_CLONES
void narrow_all(const float* source, Float16* out, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] = to_float16(source[i]);
}

// A copy of this size leaves nothing useful in a cache, and writing it there costs a third of the
// traffic. glibc decides alike, but at sizes that grow with the last-level cache of the whole host.
constexpr std::size_t kPastCachesBytes = std::size_t{8} << 20;
constexpr std::size_t kLine = 64;

void copy_past_caches(const std::byte* source, std::byte* out, std::size_t bytes) {
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(out) % kLine;
    std::memcpy(out, source, head);
    std::size_t i = head;
    for (; i + kLine <= bytes; i += kLine) {
        for (std::size_t k = i; k < i + kLine; k += sizeof(StreamedFloats)) {
            StreamedFloats values;
            std::memcpy(&values, source + k, sizeof values);
            store_past_caches(reinterpret_cast<float*>(out + k), values);
        }
    }
    finish_streaming();
    std::memcpy(out + i, source + i, bytes - i);
}

// Between spans of equal sizes, which may be one memory.
void copy_bytes(const std::byte* source, std::byte* out, std::size_t bytes) {
    if (source == out || bytes == 0) return;
    if (bytes >= kPastCachesBytes) return copy_past_caches(source, out, bytes);
    std::memcpy(out, source, bytes);
}

}  // namespace

void widen_block(const std::byte* source, DType source_type, float* out, std::size_t count) {
    switch (source_type) {
        case DType::kFloat32:
            return copy_bytes(source, reinterpret_cast<std::byte*>(out), count * sizeof(float));
        case DType::kBFloat16:
            return widen_all(reinterpret_cast<const BFloat16*>(source), out, count);
        case DType::kFloat16:
            return widen_all(reinterpret_cast<const Float16*>(source), out, count);
        case DType::kInt64:
            break;
    }
    ensure(false, "casts are between floating-point types");
}

void narrow_block(const float* source, std::byte* out, DType out_type, std::size_t count) {
    switch (out_type) {
        case DType::kFloat32:
            return copy_bytes(reinterpret_cast<const std::byte*>(source), out,
                              count * sizeof(float));
        case DType::kBFloat16:
            return narrow_all(source, reinterpret_cast<BFloat16*>(out), count);
        case DType::kFloat16:
            return narrow_all(source, reinterpret_cast<Float16*>(out), count);
        case DType::kInt64:
            break;
    }
    ensure(false, "casts are between floating-point types");
}

void widen(TypedSpan source, std::span<float> out) {
    ensure(source.count == static_cast<std::int64_t>(out.size()), "a cast keeps the count");
    widen_block(source.data, source.dtype, out.data(), out.size());
}

void narrow(std::span<const float> source, TypedSpan out) {
    ensure(static_cast<std::int64_t>(source.size()) == out.count, "a cast keeps the count");
    narrow_block(source.data(), out.data, out.dtype, source.size());
}

void convert(TypedSpan source, TypedSpan out) {
    ensure(source.count == out.count, "a cast keeps the count");
    if (source.dtype == DType::kFloat32) return narrow(source.as<float>(), out);
    if (out.dtype == DType::kFloat32) return widen(source, out.as<float>());
    std::array<float, kBlock> block;
    for (std::int64_t begin = 0; begin < out.count; begin += kBlock) {
        const std::int64_t count = std::min(kBlock, out.count - begin);
        const auto floats = std::span(block).first(static_cast<std::size_t>(count));
        widen(source.part(begin, count), floats);
        narrow(floats, out.part(begin, count));
    }
}

}  // namespace fullshard::kernels
