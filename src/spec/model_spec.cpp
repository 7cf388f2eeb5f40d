#include "spec/model_spec.h"

#include "base/error.h"
#include "base/rng.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace fullshard::spec {

std::int64_t ParameterSpec::numel() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t ParameterSpec::padding_numel() const {
    return padding_rows == 0 ? 0 : numel() / shape.front() * padding_rows;
}

std::int64_t StageSpec::numel() const {
    std::int64_t sum = 0;
    for (const ParameterSpec& parameter : parameters) {
        if (parameter.tied_to.empty()) sum += parameter.numel();
    }
    return sum;
}

std::int64_t ModelSpec::numel() const {
    std::int64_t sum = 0;
    for (const StageSpec& stage : stages) sum += stage.numel();
    return sum;
}

namespace {

void draw(const ParameterSpec& parameter, std::uint64_t seed, std::int64_t first,
          std::span<float> out) {
    const InitRule& rule = parameter.init;
    const RandomStream stream(mix(seed, stable_hash(parameter.name)));
    const auto fill = [&](auto&& value_at) {
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] =
                static_cast<float>(rule.scale * value_at(static_cast<std::uint64_t>(first) + i));
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
        case InitRule::Kind::kModule:
            break;  // only the stage's module knows
    }
    throw LogicError("no rule gives the initial values of " + parameter.name);
}

}  // namespace

void initialize(const ParameterSpec& parameter, std::uint64_t seed, std::int64_t first,
                std::span<float> out) {
    const auto count = static_cast<std::int64_t>(out.size());
    ensure(first >= 0 && first <= parameter.numel() && count <= parameter.numel() - first,
           "initialised range lies inside the parameter");

    draw(parameter, seed, first, out);
    const std::int64_t used = parameter.numel() - parameter.padding_numel();
    const std::int64_t padding = std::clamp(first + count - used, std::int64_t{0}, count);
    std::ranges::fill(out.last(static_cast<std::size_t>(padding)), 0.0F);
}

}  // namespace fullshard::spec
