#include "spec/model_spec.h"

#include "base/error.h"
#include "base/rng.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace fullshard::spec {
namespace {

template <typename Part>
std::int64_t total_numel(const std::vector<Part>& parts) {
    return std::transform_reduce(parts.begin(), parts.end(), std::int64_t{0}, std::plus<>(),
                                 [](const Part& part) { return part.numel(); });
}

}  // namespace

std::int64_t ParameterSpec::numel() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t StageSpec::numel() const {
    return total_numel(parameters);
}

std::int64_t ModelSpec::numel() const {
    return total_numel(stages);
}

void initialize(const ParameterSpec& parameter, std::uint64_t seed, std::int64_t first,
                std::span<float> out) {
    const auto count = static_cast<std::int64_t>(out.size());
    ensure(first >= 0 && first <= parameter.numel() && count <= parameter.numel() - first,
           "initialised range lies inside the parameter");

    const InitRule& rule = parameter.init;
    const RandomStream stream(mix(seed, stable_hash(parameter.name)));
    const auto fill = [&](auto&& value_at) {
        for (std::int64_t i = 0; i < count; ++i)
            out[static_cast<std::size_t>(i)] =
                static_cast<float>(rule.scale * value_at(static_cast<std::uint64_t>(first + i)));
    };
    switch (rule.kind) {
        case InitRule::Kind::kConstant:
            std::fill(out.begin(), out.end(), static_cast<float>(rule.scale));
            return;
        case InitRule::Kind::kUniform:
            fill([&](std::uint64_t element) { return 2.0 * stream.uniform(element) - 1.0; });
            return;
        case InitRule::Kind::kNormal:
            fill([&](std::uint64_t element) { return stream.normal(element); });
            return;
    }
    throw LogicError("unknown initialisation rule of " + parameter.name);
}

}  // namespace fullshard::spec
