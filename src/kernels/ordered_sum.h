// Elementwise sums in one fixed order: the order in which gradients of ranks and micro-batches are
// added, whatever the world looks like.
#pragma once

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

/// accumulator[i] += addend[i]. Equal sizes (else LogicError); the two may be the same memory but
/// must not overlap otherwise.
void add_into(std::span<float> accumulator, std::span<const float> addend);

}  // namespace fullshard::kernels
