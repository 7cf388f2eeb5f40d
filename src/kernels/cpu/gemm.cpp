#include "kernels/gemm.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace fullshard::kernels {

namespace {

template <typename T>
bool well_formed(const BasicMatrix<T>& matrix) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();  // BLAS counts in int
    return matrix.rows >= 0 && matrix.columns >= 0 && matrix.row_stride >= matrix.memory_row() &&
           std::max({matrix.rows, matrix.columns, matrix.row_stride}) <= kMost;
}

void clear(const OutputMatrix& out) {
    for (std::int64_t row = 0; row < out.rows; ++row)
        std::fill_n(out.data + row * out.row_stride, out.columns, 0.0F);
}

}  // namespace

void Gemm::multiply(const OutputMatrix& out, const Matrix& left, const Matrix& right,
                    bool accumulate) const {
    ensure(well_formed(out) && well_formed(left) && well_formed(right) && !out.transposed,
           "a matrix has a row stride of a row at least");
    ensure(left.rows == out.rows && left.columns == right.rows && right.columns == out.columns,
           "the shapes of a product fit");
    if (out.rows == 0 || out.columns == 0) return;
    if (left.columns == 0) {
        if (!accumulate) clear(out);
        return;
    }
    compute(out, left, right, accumulate);
}

namespace {

/// Small integers: products and sums of them are exact in any order.
class TestMatrix {
  public:
    TestMatrix(std::int64_t rows, std::int64_t columns, bool transposed, std::int64_t seed)
        : rows_(rows), columns_(columns), transposed_(transposed) {
        // The elements between rows hold NaN: reading or writing them shows.
        values_.assign(static_cast<std::size_t>(memory_rows() * row_stride()),
                       std::numeric_limits<float>::quiet_NaN());
        for (std::int64_t i = 0; i < rows; ++i) {
            for (std::int64_t j = 0; j < columns; ++j)
                at(i, j) = static_cast<float>((i * 7 + j * 5 + seed) % 9 - 4);
        }
    }

    float& at(std::int64_t row, std::int64_t column) {
        const std::int64_t memory_row = transposed_ ? column : row;
        const std::int64_t memory_column = transposed_ ? row : column;
        return values_[static_cast<std::size_t>(memory_row * row_stride() + memory_column)];
    }
    Matrix view() const { return {values_.data(), rows_, columns_, row_stride(), transposed_}; }
    OutputMatrix output() { return {values_.data(), rows_, columns_, row_stride(), transposed_}; }
    std::int64_t numbers() const {
        return std::ranges::count_if(values_, [](float value) { return !std::isnan(value); });
    }

  private:
    std::int64_t memory_rows() const { return transposed_ ? columns_ : rows_; }
    std::int64_t row_stride() const { return (transposed_ ? rows_ : columns_) + 3; }

    std::int64_t rows_;
    std::int64_t columns_;
    bool transposed_;
    std::vector<float> values_;
};

bool is_right(const Gemm& gemm, bool transposed_left, bool transposed_right, bool accumulate) {
    // Sizes that fill no block of any library's kernels.
    constexpr std::int64_t kRows = 37, kColumns = 29, kInner = 71;
    TestMatrix left(kRows, kInner, transposed_left, 1);
    TestMatrix right(kInner, kColumns, transposed_right, 2);
    TestMatrix out(kRows, kColumns, false, 3), expected = out;
    for (std::int64_t i = 0; i < kRows; ++i) {
        for (std::int64_t j = 0; j < kColumns; ++j) {
            float sum = accumulate ? expected.at(i, j) : 0.0F;
            for (std::int64_t k = 0; k < kInner; ++k) sum += left.at(i, k) * right.at(k, j);
            expected.at(i, j) = sum;
            if (!accumulate) out.at(i, j) = std::numeric_limits<float>::quiet_NaN();
        }
    }
    gemm.multiply(out.output(), left.view(), right.view(), accumulate);
    if (out.numbers() != kRows * kColumns) return false;
    for (std::int64_t i = 0; i < kRows; ++i) {
        for (std::int64_t j = 0; j < kColumns; ++j) {
            if (out.at(i, j) != expected.at(i, j)) return false;
        }
    }
    return true;
}

}  // namespace

std::string find_fault(const Gemm& gemm) {
    for (const bool transposed_left : {false, true}) {
        for (const bool transposed_right : {false, true}) {
            for (const bool accumulate : {false, true}) {
                try {
                    if (is_right(gemm, transposed_left, transposed_right, accumulate)) continue;
                } catch (const RunError& error) {
                    return error.what();
                }
                return fmt::format("{} computes a wrong product{}{}{}", gemm.description(),
                                   transposed_left ? ", left matrix transposed" : "",
                                   transposed_right ? ", right matrix transposed" : "",
                                   accumulate ? ", added to a matrix" : "");
            }
        }
    }
    return {};
}

}  // namespace fullshard::kernels
