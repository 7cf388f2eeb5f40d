// Marks functions that run on the host and on CUDA devices. constexpr functions need no mark:
// kernels/cuda is compiled with --expt-relaxed-constexpr.
#pragma once

#if defined(__CUDACC__)
#define FULLSHARD_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define FULLSHARD_HOST_DEVICE [[gnu::always_inline]] inline
#endif
