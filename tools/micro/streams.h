// Loops that do nothing but move memory: the limit of every kernel that is bound by it.
#pragma once

#include <span>

namespace fullshard::micro {

/// out[i] = a[i] + factor * b[i], as in STREAM (McCalpin): three streams of 4 bytes an element are
/// counted. Stores fetch their cache line first, which is not counted.
void triad(std::span<float> out, std::span<const float> a, std::span<const float> b, float factor);

/// The same with stores that pass the caches by (on x86-64; elsewhere it is triad). `out` and the
/// sources begin at 16 bytes and have a multiple of 16 elements (else LogicError).
void streaming_triad(std::span<float> out, std::span<const float> a, std::span<const float> b,
                     float factor);

/// out[i] = a[i], with such stores: two streams. The same conditions.
void streaming_copy(std::span<float> out, std::span<const float> a);

/// Sum over i of values[i], in no certain order: one stream.
float read_all(std::span<const float> values);

}  // namespace fullshard::micro
