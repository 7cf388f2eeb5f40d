// Matrix products by oneDNN's dnnl_sgemm (oneAPI specification, dnnl.h): row-major, status 0 for
// success. The few functions are declared here: no header is needed to build.
#include "base/error.h"
#include "kernels/cpu/gemm_library.h"
#include "kernels/cpu/shared_library.h"
#include "kernels/gemm.h"

#include <fmt/format.h>

#include <array>

namespace fullshard::kernels {

namespace {

using Index = std::int64_t;  ///< dnnl_dim_t
using Sgemm = int(char transa, char transb, Index m, Index n, Index k, float alpha, const float* a,
                  Index lda, const float* b, Index ldb, float beta, float* c, Index ldc);

struct Version {  ///< the start of dnnl_version_t
    int major, minor, patch;
};

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
        const int status =
            sgemm_(left.transposed ? 'T' : 'N', right.transposed ? 'T' : 'N', out.rows, out.columns,
                   left.columns, 1.0F, left.data, left.row_stride, right.data, right.row_stride,
                   accumulate ? 1.0F : 0.0F, out.data, out.row_stride);
        if (status != 0) {
            throw RunError(fmt::format("{}: dnnl_sgemm of {} x {} x {} returned status {}",
                                       description_, out.rows, out.columns, left.columns, status));
        }
    }

    Sgemm* sgemm_;
    std::string description_;
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
