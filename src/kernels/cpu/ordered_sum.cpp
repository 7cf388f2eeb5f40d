#include "kernels/ordered_sum.h"

#include "base/error.h"
#include "kernels/cpu/cast_blocks.h"
#include "kernels/cpu/simd_clones.h"
#include "kernels/half_float.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace fullshard::kernels {
namespace {

// Sources of floats: pointers to float, or to the bytes of floats.
template <typename Pointer>
using Sources = std::span<const Pointer>;

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

// The sum of two bfloat16 or two binary16 numbers, rounded to float and then to their type, is the
// correctly rounded one: a float has more than twice their bits, plus two.

FULLSHARD_SIMD_CLONES
void add_rounded_to_bfloat16(float* accumulator, const float* addend, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
        accumulator[i] = to_float(to_bfloat16(accumulator[i] + addend[i]));
    }
}

FULLSHARD_SIMD_CLONES
void add_rounded_to_float16(float* accumulator, const float* addend, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) {
        accumulator[i] = to_float(to_float16(accumulator[i] + addend[i]));
    }
}

FULLSHARD_SIMD_CLONES
void add_widened(float* accumulator, const BFloat16* addend, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) accumulator[i] += to_float(addend[i]);
}

FULLSHARD_SIMD_CLONES
void add_widened(float* accumulator, const Float16* addend, std::size_t count) {
#pragma GCC ivdep
    for (std::size_t i = 0; i < count; ++i) accumulator[i] += to_float(addend[i]);
}

// Sums elements [begin, begin + count) of the sources into out[0 .. count) where one loop does it.
template <typename Pointer>
bool sum_in_one_loop(float* out, Sources<Pointer> s, std::size_t begin, std::size_t count) {
    const auto at = [&](std::size_t k) { return reinterpret_cast<const float*>(s[k]) + begin; };
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
template <typename Pointer>
void sum_block(float* out, Sources<Pointer> sources, std::size_t begin, std::size_t count) {
    if (sum_in_one_loop(out, sources, begin, count)) return;
    const std::size_t split = std::bit_floor(sources.size() - 1);
    std::array<float, kBlock> left;
    std::array<float, kBlock> right;
    sum_block(left.data(), sources.first(split), begin, count);
    sum_block(right.data(), sources.subspan(split), begin, count);
    sum_of_2(out, left.data(), right.data(), count);
}

template <typename Pointer>
void sum_floats(std::span<float> out, Sources<Pointer> sources) {
    ensure(!sources.empty(), "a sum has at least one source");
    if (sum_in_one_loop(out.data(), sources, 0, out.size())) return;
    for (std::size_t begin = 0; begin < out.size(); begin += kBlock) {
        const std::size_t count = std::min(kBlock, out.size() - begin);
        sum_block(out.data() + begin, sources, begin, count);
    }
}

// The tree where types differ or are half-width: blocks of at most kBlock floats, the values of
// which are numbers of the sum's type.
class RoundedTree {
  public:
    RoundedTree(DType sum_type, DType source_type)
        : sum_type_(sum_type), source_type_(source_type) {}

    // Elements [begin, begin + count) of the sources' sum, for the first elements of `out`.
    void sum(std::byte* out, Sources<const std::byte*> sources, std::size_t begin,
             std::size_t count) const {
        std::array<float, kBlock> total;
        if (sources.size() == 1) {
            load(total.data(), sources[0], begin, count);
        } else {
            std::array<float, kBlock> right;
            halves(total.data(), right.data(), sources, begin, count);
            sum_of_2(total.data(), total.data(), right.data(), count);
        }
        narrow_block(total.data(), out, sum_type_, count);
    }

  private:
    void halves(float* left, float* right, Sources<const std::byte*> sources, std::size_t begin,
                std::size_t count) const {
        const std::size_t split = std::bit_floor(sources.size() - 1);
        rounded_sum(left, sources.first(split), begin, count);
        rounded_sum(right, sources.subspan(split), begin, count);
    }

    void rounded_sum(float* out, Sources<const std::byte*> sources, std::size_t begin,
                     std::size_t count) const {
        if (sources.size() == 1) return load(out, sources[0], begin, count);
        std::array<float, kBlock> right;
        halves(out, right.data(), sources, begin, count);
        switch (sum_type_) {
            case DType::kBFloat16:
                return add_rounded_to_bfloat16(out, right.data(), count);
            case DType::kFloat16:
                return add_rounded_to_float16(out, right.data(), count);
            default:
                return sum_of_2(out, out, right.data(), count);
        }
    }

    void load(float* out, const std::byte* source, std::size_t begin, std::size_t count) const {
        const std::byte* first = source + begin * static_cast<std::size_t>(size_of(source_type_));
        widen_block(first, source_type_, out, count);
        if (sum_type_ == source_type_ || sum_type_ == DType::kFloat32) return;
        alignas(Float16) std::array<std::byte, kBlock * sizeof(Float16)> rounded;
        narrow_block(out, rounded.data(), sum_type_, count);
        widen_block(rounded.data(), sum_type_, out, count);
    }

    DType sum_type_;
    DType source_type_;
};

}  // namespace

void tree_sum(std::span<float> out, std::span<const float* const> sources) {
    sum_floats(out, sources);
}

void tree_sum(TypedSpan out, std::span<const std::byte* const> sources, DType source_type) {
    if (out.dtype == DType::kFloat32 && source_type == DType::kFloat32) {
        return sum_floats(out.as<float>(), sources);
    }
    ensure(!sources.empty(), "a sum has at least one source");
    const RoundedTree tree(out.dtype, source_type);
    constexpr auto kStep = static_cast<std::int64_t>(kBlock);
    for (std::int64_t begin = 0; begin < out.count; begin += kStep) {
        const std::int64_t count = std::min(kStep, out.count - begin);
        tree.sum(out.part(begin, count).data, sources, static_cast<std::size_t>(begin),
                 static_cast<std::size_t>(count));
    }
}

void add_into(std::span<float> accumulator, TypedSpan addend) {
    const std::size_t count = accumulator.size();
    ensure(static_cast<std::int64_t>(count) == addend.count,
           "both sides of a sum have equal sizes");
    switch (addend.dtype) {
        case DType::kFloat32:
            return sum_of_2(accumulator.data(), accumulator.data(), addend.as<float>().data(),
                            count);
        case DType::kBFloat16:
            return add_widened(accumulator.data(), addend.as<BFloat16>().data(), count);
        case DType::kFloat16:
            return add_widened(accumulator.data(), addend.as<Float16>().data(), count);
        case DType::kInt64:
            break;
    }
    ensure(false, "sums are of floating-point types");
}

}  // namespace fullshard::kernels
