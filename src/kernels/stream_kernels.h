// What a device computes besides the model, enqueued on a stream: the same calls for CUDA and for
// host devices.
#pragma once

#include "base/span.h"
#include "device/device.h"
#include "kernels/adamw.h"
#include "kernels/square_sum.h"

#include <cstdint>
#include <optional>

namespace fullshard::kernels {

/// Flat memory of one AdamW update, all of one count. No span overlaps another one.
struct AdamWMemory {
    TypedSpan param;          ///< fp32, replaced
    TypedSpan gradient;       ///< fp32, read
    TypedSpan first_moment;   ///< fp32, replaced
    TypedSpan second_moment;  ///< fp32, replaced
    /// Receives the new parameters, rounded to its type: fp32, bf16 or fp16. Empty: no copy.
    TypedSpan copy{};
};

/// Rounds a bf16 copy up or down by chance, so that it is right on average: up with the probability
/// that the dropped bits are of the distance between both neighbours. The choice for an element is
/// a function of `key` and of its position, whatever the sharding and the cut into calls.
struct StochasticRounding {
    std::uint64_t key = 0;           ///< differs between steps and between flat parameters
    std::int64_t first_element = 0;  ///< position of the call's first element; not negative
};

/// Rows of logits, one behind the other, and what is computed from them.
struct CrossEntropyRows {
    /// fp32, bf16 or fp16: row r is elements [r * row_stride, r * row_stride + classes). The others
    /// are neither read nor written. CUDA is fastest where rows start at multiples of 16 bytes.
    TypedSpan logits;
    std::int64_t classes = 0;
    std::int64_t row_stride = 0;  ///< at least `classes`
    TypedSpan targets;            ///< int64, one a row; a negative one: the row is ignored
    TypedSpan losses;             ///< fp32, one a row
};

/// Enqueues and returns; nothing is allocated on the device. Spans lie in memory of the stream's
/// device, aligned to their elements; the data of empty ones is not looked at. Types are fp32, bf16
/// and fp16 where nothing else is said; other types and counts that do not fit are LogicErrors.
/// Halves are widened exactly and rounded to nearest, ties to even (kernels/half_float.h).
///
/// Equal operands give equal bits in every run. Where nothing else is said, each element depends on
/// its own index alone, so that any cut into calls gives equal bits, and all implementations agree
/// in every bit.
class StreamKernels {
  public:
    virtual ~StreamKernels() = default;
    StreamKernels(const StreamKernels&) = delete;
    StreamKernels& operator=(const StreamKernels&) = delete;

    /// to[i] = from[i], rounded once. Both of one count. They do not overlap.
    virtual void convert(TypedSpan from, TypedSpan to, device::Stream& stream) const = 0;

    /// sum[i] += from[i]; `sum` is fp32, of one count with `from`. They do not overlap.
    virtual void accumulate(TypedSpan from, TypedSpan sum, device::Stream& stream) const = 0;

    /// values[i] *= factor, which is rounded to fp32; the product is rounded to fp32, then to the
    /// type of `values`.
    virtual void scale(TypedSpan values, double factor, device::Stream& stream) const = 0;

    /// Adds the exact sum of the squares of `values` to `bins`: SquareSum::kBins elements of int64
    /// as in SquareSum::bins(), zeroed before the first call. Since they are integers, their sum is
    /// one number for every order of values, calls and ranks. Bins may hold carries that are not
    /// passed on: the sums that SquareSum::value() gives are equal on all implementations, single
    /// bins need not be. Up to 2^18 calls, of all ranks together, may be summed up.
    virtual void square_sum(TypedSpan values, TypedSpan bins, device::Stream& stream) const = 0;

    /// One update, as kernels::adamw_update() does it; the copy is written in the same pass.
    /// `stochastic` goes with a bf16 copy only.
    virtual void adamw_update(const AdamWMemory& memory, const AdamWScalars& scalars,
                              std::optional<StochasticRounding> stochastic,
                              device::Stream& stream) const = 0;

    /// Softmax cross-entropy of a chunk of rows, forward and backward in one:
    ///
    ///     losses[r] = log(sum_i exp(logits[r][i])) - logits[r][target]
    ///     logits[r][i] = (exp(logits[r][i]) / sum - [i = target]) * factor
    ///
    /// Losses are not multiplied by the factor. An ignored row has loss and gradients 0, whatever
    /// its logits; one with a target beyond the classes has NaN in both. Computed in fp32; errors
    /// are those of kernels/cross_entropy.h, plus the rounding of gradients to the logits' type.
    /// Implementations may differ by such errors. A row's results depend on its own values alone.
    virtual void cross_entropy(const CrossEntropyRows& rows, float factor,
                               device::Stream& stream) const = 0;

  protected:
    StreamKernels() = default;
};

}  // namespace fullshard::kernels
