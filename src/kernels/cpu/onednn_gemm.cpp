// Matrix products by oneDNN's dnnl_sgemm (oneAPI specification, dnnl.h): row-major, status 0 for
// success. The few functions are declared here: no header is needed to build.
#include "base/aligned_buffer.h"
#include "base/error.h"
#include "kernels/cpu/gemm_library.h"
#include "kernels/cpu/shared_library.h"
#include "kernels/gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace fullshard::kernels {

namespace {

using Index = std::int64_t;  ///< dnnl_dim_t
using Sgemm = int(char transa, char transb, Index m, Index n, Index k, float alpha, const float* a,
                  Index lda, const float* b, Index ldb, float beta, float* c, Index ldc);

struct Version {  ///< the start of dnnl_version_t
    int major, minor, patch;
};

/// Where the result is narrow, the library reads an operand whose rows of memory run across the sum
/// in place, some elements of each row after the other. Rows a multiple of 1 KiB apart share few
/// sets of the L1 cache: oneDNN 2.6 on Zen 3 computes 2048 x 256 with sums of 512 products at
/// 40 GFLOP/s, and at 86 from a copy with rows that are a little longer, the time of copying
/// included. `own` is the operand's side of the result, `other` the other one.
bool crowds_cache_sets(std::int64_t row_stride, std::int64_t own, std::int64_t other) {
    constexpr std::int64_t kDistance = 1024 / sizeof(float), kNarrow = 256, kSmall = 512;
    return row_stride % kDistance == 0 && (other <= kNarrow || (other <= kSmall && own <= kSmall));
}

/// Columns [first, first + count).
Matrix columns_of(const Matrix& matrix, std::int64_t first, std::int64_t count) {
    return {matrix.data + first * (matrix.transposed ? matrix.row_stride : 1), matrix.rows, count,
            matrix.row_stride, matrix.transposed};
}
Matrix rows_of(const Matrix& matrix, std::int64_t first, std::int64_t count) {
    return columns_of(matrix.transpose(), first, count).transpose();
}

class OneDnnGemm final : public Gemm {
  public:
    OneDnnGemm(Sgemm* sgemm, const Version* version)
        : sgemm_(sgemm),
          description_(version == nullptr ? "oneDNN"
                                          : fmt::format("oneDNN {}.{}.{}", version->major,
                                                        version->minor, version->patch)) {}

    std::string description() const override { return description_; }

  private:
    void compute(const OutputMatrix& out, const Matrix& left, const Matrix& right,
                 bool accumulate) const override {
        if (left.transposed && crowds_cache_sets(left.row_stride, out.rows, out.columns)) {
            for_each_copy(left.transpose(), [&](std::int64_t row, std::int64_t first,
                                                const Matrix& copy) {
                call({out.data + row * out.row_stride, copy.columns, out.columns, out.row_stride},
                     copy.transpose(), rows_of(right, first, copy.rows), accumulate || first > 0);
            });
        } else if (!right.transposed &&
                   crowds_cache_sets(right.row_stride, out.columns, out.rows)) {
            for_each_copy(right, [&](std::int64_t column, std::int64_t first, const Matrix& copy) {
                call({out.data + column, out.rows, copy.columns, out.row_stride},
                     columns_of(left, first, copy.rows), copy, accumulate || first > 0);
            });
        } else {
            call(out, left, right, accumulate);
        }
    }

    /// Copies parts of a matrix, whose rows are terms of the sums, into memory that crowds no sets:
    /// visit(first column, first row, copy), rows of equal columns in order.
    template <typename Visit>
    void for_each_copy(const Matrix& operand, Visit&& visit) const {
        if (copied_.empty()) copied_ = AlignedBuffer(kCopied);
        float* const copy = copied_.span().data();
        for (std::int64_t column = 0; column < operand.columns; column += kCopiedColumns) {
            const std::int64_t columns = std::min(kCopiedColumns, operand.columns - column);
            const std::int64_t stride = columns + kLonger, most = kCopied / stride;
            for (std::int64_t first = 0; first < operand.rows; first += most) {
                const std::int64_t rows = std::min(most, operand.rows - first);
                for (std::int64_t i = 0; i < rows; ++i) {
                    std::copy_n(operand.data + (first + i) * operand.row_stride + column, columns,
                                copy + i * stride);
                }
                visit(column, first, Matrix{copy, rows, columns, stride});
            }
        }
    }

    void call(const OutputMatrix& out, const Matrix& left, const Matrix& right,
              bool accumulate) const {
        const int status =
            sgemm_(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', out.rows, out.columns,
                   left.columns, 1.0F, left.data, left.row_stride, right.data, right.row_stride,
                   accumulate ? 1.0F : 0.0F, out.data, out.row_stride);
        if (status != 0) {
            throw RunError(fmt::format("{}: dnnl_sgemm of {} x {} x {} returned status {}",
                                       description_, out.rows, out.columns, left.columns, status));
        }
    }

    static constexpr std::int64_t kCopied = std::int64_t{1} << 19;  ///< elements: 2 MiB
    static constexpr std::int64_t kCopiedColumns = 2048;
    static constexpr std::int64_t kLonger = 64 / sizeof(float);  ///< a line of the cache

    Sgemm* sgemm_;
    std::string description_;
    mutable AlignedBuffer copied_;  ///< a part of an operand; made when it is first needed
};

}  // namespace

GemmOffer load_onednn(int threads) {
    // Both have the same C functions; the number is that of the C++ interface.
    constexpr std::array<std::string_view, 2> kFiles{"libdnnl.so.3", "libdnnl.so.2"};
    return first_offer(kFiles, [=](std::string_view file) { return load_onednn(threads, file); });
}

GemmOffer load_onednn(int threads, std::string_view file) {
    std::string reason;
    const auto library = SharedLibrary::open(file, reason);
    if (!library) return {nullptr, reason};
    auto* const sgemm = library->function<Sgemm>("dnnl_sgemm");
    if (sgemm == nullptr) return {nullptr, fmt::format("{} has no dnnl_sgemm", file)};
    // Its own OpenMP's, which may be another one than LibTorch's.
    if (auto* const set_threads = library->function<void(int)>("omp_set_num_threads"))
        set_threads(threads);
    auto* const version = library->function<const Version*()>("dnnl_version");
    return tested(std::make_unique<OneDnnGemm>(sgemm, version == nullptr ? nullptr : version()));
}

}  // namespace fullshard::kernels
