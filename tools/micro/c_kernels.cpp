// The kernels that adamw.py times beside PyTorch's, with C linkage for ctypes. An error ends the
// process: no exception may leave a C function.
#include "kernels/adamw.h"
#include "micro/streams.h"

#include <cstddef>
#include <cstdint>

extern "C" {

/// One update of `count` elements; `step` counts from 1.
void fullshard_adamw(float* param, const float* gradient, float* first_moment, float* second_moment,
                     std::int64_t count, double lr, double weight_decay,
                     std::int64_t step) noexcept {
    const auto n = static_cast<std::size_t>(count);
    const auto scalars =
        fullshard::kernels::adamw_scalars({.lr = lr, .weight_decay = weight_decay, .step = step});
    fullshard::kernels::adamw_update({param, n}, {gradient, n}, {first_moment, n},
                                     {second_moment, n}, scalars);
}

/// STREAM's triad, the faster kind of stores if `streaming` is not 0; `count` a multiple of 16.
void fullshard_triad(float* out, const float* a, const float* b, std::int64_t count,
                     int streaming) noexcept {
    const auto n = static_cast<std::size_t>(count);
    constexpr float kFactor = 0.5F;
    if (streaming != 0) {
        fullshard::micro::streaming_triad({out, n}, {a, n}, {b, n}, kFactor);
    } else {
        fullshard::micro::triad({out, n}, {a, n}, {b, n}, kFactor);
    }
}

}  // extern "C"
