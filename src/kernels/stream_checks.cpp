#include "kernels/stream_checks.h"

#include "base/error.h"

#include <cstdint>
#include <initializer_list>

namespace fullshard::kernels {
namespace {

void check_placed(std::initializer_list<TypedSpan> spans, DeviceKind device) {
    for (const TypedSpan& span : spans) {
        if (span.count == 0) continue;
        ensure(span.device == device, "operands lie on the stream's device");
        ensure(reinterpret_cast<std::uintptr_t>(span.data) %
                       static_cast<std::uintptr_t>(size_of(span.dtype)) ==
                   0,
               "operands are aligned to their elements");
    }
}

void check_floating(std::initializer_list<TypedSpan> spans) {
    for (const TypedSpan& span : spans)
        ensure(span.dtype != DType::kInt64, "values are of a floating-point type");
}

void check_counts(std::initializer_list<TypedSpan> spans) {
    for (const TypedSpan& span : spans)
        ensure(span.count == spans.begin()->count, "operands have equal counts");
}

void check_float32(std::initializer_list<TypedSpan> spans) {
    for (const TypedSpan& span : spans)
        ensure(span.dtype == DType::kFloat32, "sums, parameters, moments and losses are fp32");
}

}  // namespace

void check_convert(TypedSpan from, TypedSpan to, DeviceKind device) {
    check_placed({from, to}, device);
    check_floating({from, to});
    check_counts({from, to});
}

void check_accumulate(TypedSpan from, TypedSpan sum, DeviceKind device) {
    check_placed({from, sum}, device);
    check_floating({from});
    check_float32({sum});
    check_counts({from, sum});
}

void check_scale(TypedSpan values, DeviceKind device) {
    check_placed({values}, device);
    check_floating({values});
}

void check_square_sum(TypedSpan values, TypedSpan bins, DeviceKind device) {
    check_placed({values, bins}, device);
    check_floating({values});
    ensure(bins.dtype == DType::kInt64 && bins.count == static_cast<std::int64_t>(SquareSum::kBins),
           "a sum of squares has SquareSum::kBins bins of int64");
}

void check_adamw_update(const AdamWMemory& memory,
                        const std::optional<StochasticRounding>& stochastic, DeviceKind device) {
    const auto& [param, gradient, first_moment, second_moment, copy] = memory;
    check_placed({param, gradient, first_moment, second_moment, copy}, device);
    check_float32({param, gradient, first_moment, second_moment});
    check_counts({param, gradient, first_moment, second_moment});
    if (copy.count != 0 || stochastic) {
        check_floating({copy});
        check_counts({param, copy});
    }
    if (stochastic) {
        ensure(copy.dtype == DType::kBFloat16, "stochastic rounding goes with a bf16 copy");
        ensure(stochastic->first_element >= 0, "positions of elements are not negative");
    }
}

void check_cross_entropy(const CrossEntropyRows& rows, DeviceKind device) {
    check_placed({rows.logits, rows.targets, rows.losses}, device);
    check_floating({rows.logits});
    check_float32({rows.losses});
    ensure(rows.targets.dtype == DType::kInt64, "targets are int64");
    check_counts({rows.targets, rows.losses});
    if (rows.losses.count == 0) return;
    ensure(rows.classes > 0, "a row of logits has a class");
    ensure(rows.row_stride >= rows.classes, "rows of logits do not overlap");
    ensure(rows.logits.count >= (rows.losses.count - 1) * rows.row_stride + rows.classes,
           "logits hold all rows");
}

}  // namespace fullshard::kernels
