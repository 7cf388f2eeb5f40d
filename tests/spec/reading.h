// What the tests of descriptions look at.
#pragma once

#include "spec/model_spec.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::spec {

using Shape = std::vector<std::int64_t>;

inline std::vector<ParameterSpec> all_parameters(const ModelSpec& spec) {
    std::vector<ParameterSpec> all;
    for (const auto& stage : spec.stages)
        all.insert(all.end(), stage.parameters.begin(), stage.parameters.end());
    return all;
}

inline std::vector<std::pair<std::string, Shape>> names_and_shapes(const ModelSpec& spec) {
    std::vector<std::pair<std::string, Shape>> list;
    for (const auto& parameter : all_parameters(spec))
        list.emplace_back(parameter.name, parameter.shape);
    return list;
}

}  // namespace fullshard::spec
