// Compiled with -ffp-contract=fast: a product and a sum become one instruction where there is one.
#include "micro/fused.h"

namespace fullshard::micro {

namespace {

template <int kBytes>
using Vector __attribute__((vector_size(kBytes))) = float;

/// Sums that do not wait for each other hide the latency: 2 units of 4 or 5 cycles need 10.
template <int kBytes>
[[gnu::always_inline]] inline float fuse_vectors(std::int64_t count) {
    constexpr int kChains = 12, kWidth = kBytes / static_cast<int>(sizeof(float));
    Vector<kBytes> sums[kChains];
    for (int chain = 0; chain < kChains; ++chain)
        sums[chain] = Vector<kBytes>{} + 1.0F / (chain + 1);
    // Towards 1 from anywhere: neither overflow nor subnormal numbers.
    const Vector<kBytes> factor = Vector<kBytes>{} + 0.5F, term = factor;
    for (std::int64_t done = 0; done < count; done += kChains * kWidth) {
#pragma GCC unroll 12
        for (int chain = 0; chain < kChains; ++chain) sums[chain] = sums[chain] * factor + term;
    }
    float result = 0;
    for (const Vector<kBytes>& sum : sums) result += sum[0] + sum[kWidth - 1];
    return result;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) float fuse_avx512(std::int64_t count) {
    return fuse_vectors<64>(count);
}

__attribute__((target("avx2,fma"))) float fuse_avx2(std::int64_t count) {
    return fuse_vectors<32>(count);
}
#endif

}  // namespace

float fuse(std::int64_t count) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return fuse_avx512(count);
    if (__builtin_cpu_supports("fma")) return fuse_avx2(count);
#endif
    return fuse_vectors<16>(count);
}

}  // namespace fullshard::micro
