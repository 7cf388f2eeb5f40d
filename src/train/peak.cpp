#include "train/peak.h"

#include "base/clock.h"
#include "model/linear.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fullshard::train {

double measure_flops_per_s(DType dtype, const kernels::Gemm& gemm) {
    constexpr int kIntervals = 3;
    constexpr double kIntervalSeconds = 0.08;
    const at::NoGradGuard no_grad;
    // As much work a thread at any number of threads: 512 x 512 for one of them.
    const auto n =
        static_cast<std::int64_t>(std::ceil(std::cbrt(at::get_num_threads()) * 512.0 / 64.0)) * 64;
    const at::ScalarType type = model::scalar_type(dtype);
    const auto options = at::TensorOptions(model::multiplies(type) ? type : at::kFloat);
    const at::Tensor a = at::rand({n, n}, options);
    const at::Tensor b = at::rand({n, n}, options);
    const at::Tensor product =
        model::multiply(gemm, a, b);  // the first one pays for set-up and fresh memory

    const double flops = 2.0 * std::pow(static_cast<double>(n), 3);
    double best = 0.0;
    for (int interval = 0; interval < kIntervals; ++interval) {
        const double begin = now_seconds();
        double end = begin;
        std::int64_t products = 0;
        while (end - begin < kIntervalSeconds) {
            model::multiply_into(gemm, product, a, b, /*accumulate=*/false);
            ++products;
            end = now_seconds();
        }
        best = std::max(best, flops * static_cast<double>(products) / (end - begin));
    }
    return best;
}

}  // namespace fullshard::train
