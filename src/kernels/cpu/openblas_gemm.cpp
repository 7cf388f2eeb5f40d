// Matrix products by OpenBLAS' cblas_sgemm (CBLAS interface, cblas.h), which reports no errors. The
// few functions are declared here: no header is needed to build.
#include "kernels/cpu/gemm_library.h"
#include "kernels/cpu/shared_library.h"
#include "kernels/gemm.h"

#include <fmt/format.h>

#include <array>

namespace fullshard::kernels {

namespace {

constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
using Sgemm = void(int order, int transa, int transb, int m, int n, int k, float alpha,
                   const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);

class OpenBlasGemm final : public Gemm {
  public:
    OpenBlasGemm(Sgemm* sgemm, std::string description)
        : sgemm_(sgemm), description_(std::move(description)) {}

    std::string description() const override { return description_; }

  private:
    void compute(const OutputMatrix& out, const Matrix& left, const Matrix& right,
                 bool accumulate) const override {
        const auto narrow = [](std::int64_t count) { return static_cast<int>(count); };
        sgemm_(kRowMajor, left.transposed ? kTrans : kNoTrans, right.transposed ? kTrans : kNoTrans,
               narrow(out.rows), narrow(out.columns), narrow(left.columns), 1.0F, left.data,
               narrow(left.row_stride), right.data, narrow(right.row_stride),
               accumulate ? 1.0F : 0.0F, out.data, narrow(out.row_stride));
    }

    Sgemm* sgemm_;
    std::string description_;
};

/// openblas_get_config() is "OpenBLAS 0.3.21 ..." with what it was compiled for.
std::string description_of(const SharedLibrary& library) {
    auto* const config = library.function<const char*()>("openblas_get_config");
    if (config == nullptr) return "OpenBLAS";
    const std::string_view text = config();
    const std::size_t space = text.find(' ');
    return std::string(text.substr(0, space == text.npos ? space : text.find(' ', space + 1)));
}

}  // namespace

GemmOffer load_openblas(int threads) {
    // Where a system has several builds, the one that divides products among threads of its own;
    // Debian has one name, which the administrator points to one of them.
    constexpr std::array<std::string_view, 3> kFiles{"libopenblasp.so.0", "libopenblas.so.0",
                                                     "libopenblaso.so.0"};
    return first_offer(kFiles, [=](std::string_view file) { return load_openblas(threads, file); });
}

GemmOffer load_openblas(int threads, std::string_view file) {
    std::string reason;
    const auto library = SharedLibrary::open(file, reason);
    if (!library) return {nullptr, reason};
    auto* const sgemm = library->function<Sgemm>("cblas_sgemm");
    if (sgemm == nullptr) return {nullptr, fmt::format("{} has no cblas_sgemm", file)};
    auto* const parallel = library->function<int()>("openblas_get_parallel");
    const bool serial = parallel == nullptr || parallel() == 0;
    if (serial && threads > 1) {
        return {nullptr, fmt::format("{} is a build with one thread, and kernels.threads is {}",
                                     file, threads)};
    }
    if (auto* const set_threads = library->function<void(int)>("openblas_set_num_threads"))
        set_threads(threads);
    return tested(std::make_unique<OpenBlasGemm>(sgemm, description_of(*library)));
}

}  // namespace fullshard::kernels
