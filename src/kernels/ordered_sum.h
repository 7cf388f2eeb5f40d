// Elementwise sums in one fixed order: the order in which gradients of ranks and micro-batches are
// added, whatever the world looks like.
#pragma once

#include "base/span.h"

#include <cstddef>
#include <span>

namespace fullshard::kernels {

/// out[i] = sources[0][i] + ... + sources[n-1][i], added along the balanced binary tree over the
/// sources: tree(n) = tree(first p) + tree(other n - p), p the largest power of two below n. So 3
/// sources give (s0 + s1) + s2, and every aligned power-of-two group of sources is a subtree: its
/// sum may be computed elsewhere and put in its place without changing a bit.
///
/// Each source has out.size() elements. `out` may be the very memory of one of the sources; any
/// other overlap is forbidden. Throws LogicError without sources. Allocates nothing.
void tree_sum(std::span<float> out, std::span<const float* const> sources);

/// The same tree over elements of `source_type` in `sources`, both types any of fp32, bf16, fp16
/// (else LogicError). Each source value and the result of each addition is rounded to out's type,
/// to nearest, ties to even: sums into fp32 widen exactly and add in fp32, sums into bf16 are what
/// an all-reduce of bf16 values gives. Only where both types are equal may `out` be the very memory
/// of a source.
void tree_sum(TypedSpan out, std::span<const std::byte* const> sources, DType source_type);

/// accumulator[i] += addend[i], an addend of bf16 or fp16 widened exactly. Equal counts and a
/// floating-point type (else LogicError); the two may be the same memory but must not overlap
/// otherwise.
void add_into(std::span<float> accumulator, TypedSpan addend);

}  // namespace fullshard::kernels
