// Run-time choice of the vector instruction set for plain loops.
#pragma once

/// Compiles the function once per instruction set and picks one when the program is loaded, so that
/// a binary built for the baseline of its architecture uses the vectors of the machine it runs on.
/// All clones give equal bits: IEEE 754 fixes add, multiply, divide and square root, the project
/// builds with -ffp-contract=off, and the loops so marked never combine elements of one array, unless exactly.
#if defined(__x86_64__)
#define FULLSHARD_SIMD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FULLSHARD_SIMD_CLONES
#endif
