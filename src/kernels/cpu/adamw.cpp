#include "kernels/adamw.h"

#include "base/error.h"
#include "kernels/cpu/simd_clones.h"
#include "kernels/elements/adamw_element.h"

#include <cmath>
#include <cstddef>

namespace fullshard::kernels {
namespace {

FULLSHARD_SIMD_CLONES
void update(float* __restrict param, const float* __restrict gradient, float* __restrict m,
            float* __restrict v, std::size_t count, const AdamWScalars c) {
    for (std::size_t i = 0; i < count; ++i) {
        const AdamWElement element = updated({param[i], m[i], v[i]}, gradient[i], c);
        param[i] = element.param;
        m[i] = element.first_moment;
        v[i] = element.second_moment;
    }
}

}  // namespace

AdamWScalars adamw_scalars(const AdamWSettings& s) {
    const auto step = static_cast<double>(s.step);
    const double bias_correction1 = 1.0 - std::pow(s.beta1, step);
    const double bias_correction2 = 1.0 - std::pow(s.beta2, step);
    return {
        .decay_factor = static_cast<float>(1.0 - s.lr * s.weight_decay),
        .one_minus_beta1 = static_cast<float>(1.0 - s.beta1),
        .beta1 = static_cast<float>(s.beta1),
        .beta2 = static_cast<float>(s.beta2),
        .one_minus_beta2 = static_cast<float>(1.0 - s.beta2),
        .negative_step_size = static_cast<float>(-(s.lr / bias_correction1)),
        .sqrt_bias_correction2 = static_cast<float>(std::sqrt(bias_correction2)),
        .eps = static_cast<float>(s.eps),
        .gradient_factor = static_cast<float>(s.gradient_factor),
        .clip_value = static_cast<float>(s.clip_value),
    };
}

void adamw_update(std::span<float> param, std::span<const float> gradient,
                  std::span<float> first_moment, std::span<float> second_moment,
                  const AdamWScalars& scalars) {
    ensure(gradient.size() == param.size() && first_moment.size() == param.size() &&
               second_moment.size() == param.size(),
           "parameter, gradient and moments have equal sizes");
    update(param.data(), gradient.data(), first_moment.data(), second_moment.data(), param.size(),
           scalars);
}

}  // namespace fullshard::kernels
