#include "kernels/ordered_sum.h"

#include "base/error.h"
#include "kernels/cpu/simd_clones.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace fullshard::kernels {
namespace {

using Sources = std::span<const float* const>;

// 2 KiB a buffer: two of them a level of the recursion stay in the first-level cache, and the call
// through the clone's pointer is small beside the work of a block.
constexpr std::size_t kBlock = 512;

// In the loops below element i of `out` depends only on element i of the sources, so `ivdep` is
// true even where `out` is one of them; without it the compiler falls back to a scalar loop there.

FULLSHARD_SIMD_CLONES
void sum_of_2(float* out, const float* s0, const float* s1, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] = s0[i] + s1[i];
}

FULLSHARD_SIMD_CLONES
void sum_of_3(float* out, const float* s0, const float* s1, const float* s2, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] = (s0[i] + s1[i]) + s2[i];
}

FULLSHARD_SIMD_CLONES
void sum_of_4(float* out, const float* s0, const float* s1, const float* s2, const float* s3,
              std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) out[i] = (s0[i] + s1[i]) + (s2[i] + s3[i]);
}

FULLSHARD_SIMD_CLONES
void sum_of_8(float* out, const float* s0, const float* s1, const float* s2, const float* s3,
              const float* s4, const float* s5, const float* s6, const float* s7,
              std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = ((s0[i] + s1[i]) + (s2[i] + s3[i])) + ((s4[i] + s5[i]) + (s6[i] + s7[i]));
    }
}

// Sums elements [begin, begin + count) of the sources into out[0 .. count) where one loop does it.
bool sum_in_one_loop(float* out, Sources s, std::size_t begin, std::size_t count) {
    const auto at = [&](std::size_t k) { return s[k] + begin; };
    switch (s.size()) {
        case 1:
            if (out != at(0)) std::copy_n(at(0), count, out);
            return true;
        case 2:
            sum_of_2(out, at(0), at(1), count);
            return true;
        case 3:
            sum_of_3(out, at(0), at(1), at(2), count);
            return true;
        case 4:
            sum_of_4(out, at(0), at(1), at(2), at(3), count);
            return true;
        case 8:
            sum_of_8(out, at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7), count);
            return true;
        default:
            return false;
    }
}

// One block of at most kBlock elements. Both halves go to scratch before `out` is written, since
// `out` may be a source of either.
void sum_block(float* out, Sources sources, std::size_t begin, std::size_t count) {
    if (sum_in_one_loop(out, sources, begin, count)) return;
    const std::size_t split = std::bit_floor(sources.size() - 1);
    std::array<float, kBlock> left;
    std::array<float, kBlock> right;
    sum_block(left.data(), sources.first(split), begin, count);
    sum_block(right.data(), sources.subspan(split), begin, count);
    sum_of_2(out, left.data(), right.data(), count);
}

}  // namespace

void tree_sum(std::span<float> out, Sources sources) {
    ensure(!sources.empty(), "a sum has at least one source");
    if (sum_in_one_loop(out.data(), sources, 0, out.size())) return;
    for (std::size_t begin = 0; begin < out.size(); begin += kBlock) {
        const std::size_t count = std::min(kBlock, out.size() - begin);
        sum_block(out.data() + begin, sources, begin, count);
    }
}

void add_into(std::span<float> accumulator, std::span<const float> addend) {
    ensure(accumulator.size() == addend.size(), "both sides of a sum have equal sizes");
    sum_of_2(accumulator.data(), accumulator.data(), addend.data(), accumulator.size());
}

}  // namespace fullshard::kernels
