// Products of fp32 matrices, by whichever library a run has picked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fullshard::kernels {

/// A matrix of floats in row-major memory, or the transpose of one.
template <typename T>
struct BasicMatrix {
    T* data = nullptr;  ///< element (0, 0); may be null where the matrix is empty
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    /// Elements from a row of the memory to the next: at least as many as a row has, which are
    /// `columns`, or `rows` of a transposed matrix.
    std::int64_t row_stride = 0;
    bool transposed = false;

    BasicMatrix transpose() const { return {data, columns, rows, row_stride, !transposed}; }
    std::int64_t memory_row() const { return transposed ? rows : columns; }
};
using Matrix = BasicMatrix<const float>;
using OutputMatrix = BasicMatrix<float>;

/// A library's matrix product. Calls with equal shapes, strides and values give equal bits on one
/// kind of CPU with one number of threads, where operands start at multiples of 64 bytes and row
/// strides are equal. Call it from one thread at a time, the one that made it.
class Gemm {
  public:
    virtual ~Gemm() = default;
    Gemm(const Gemm&) = delete;
    Gemm& operator=(const Gemm&) = delete;

    /// Of the library, for example "oneDNN 2.6.3".
    virtual std::string description() const = 0;

    /// out = left right, or out += left right. `out` is not transposed and overlaps neither
    /// operand; unless it is added to, it is not read, whatever it holds. Infinities and NaNs of
    /// the operands reach every element that they are part of. An empty sum is zero. Throws
    /// LogicError for shapes and strides that do not fit, RunError when the library fails.
    void multiply(const OutputMatrix& out, const Matrix& left, const Matrix& right,
                  bool accumulate) const;

  protected:
    Gemm() = default;

  private:
    /// The same with checked arguments and no empty matrix.
    virtual void compute(const OutputMatrix& out, const Matrix& left, const Matrix& right,
                         bool accumulate) const = 0;
};

/// What the library computes wrongly or reports as failed in a few small products whose results are
/// known exactly; empty when it is right. A library whose functions are bound to those of another
/// one may return at once and compute nothing.
std::string find_fault(const Gemm& gemm);

/// A library that was loaded and tested, or the reason why there is none.
struct GemmOffer {
    std::unique_ptr<const Gemm> gemm;
    std::string reason;  ///< a part of a sentence: "libdnnl.so.2 is not found"
};

/// oneDNN, from the first of the file names or paths that the dynamic loader finds. `threads` are
/// those of the calling thread's products.
GemmOffer load_onednn(int threads);
GemmOffer load_onednn(int threads, std::string_view file);
/// OpenBLAS in the same way; a build of it that has one thread only is none where `threads` is
/// larger.
GemmOffer load_openblas(int threads);
GemmOffer load_openblas(int threads, std::string_view file);

}  // namespace fullshard::kernels
