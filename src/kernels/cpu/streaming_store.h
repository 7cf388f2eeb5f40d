// Stores that pass the caches by: memory that is written as a whole and read much later is not
// fetched first, and what the caches hold stays there.
#pragma once

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace fullshard::kernels {

using StreamedFloats = float __attribute__((vector_size(16)));

/// `out` begins at 16 bytes. Other architectures store as usual.
inline void store_past_caches(float* out, StreamedFloats values) {
#if defined(__x86_64__)
    _mm_stream_ps(out, values);
#else
    std::memcpy(out, &values, sizeof values);
#endif
}

/// Orders such stores before what follows, for other threads and processes.
inline void finish_streaming() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

}  // namespace fullshard::kernels
