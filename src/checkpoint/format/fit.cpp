#include "checkpoint/format/fit.h"

#include "base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace fullshard::checkpoint {

namespace {

using Shapes = std::map<std::string_view, std::span<const std::int64_t>>;
using Mismatches = std::vector<std::string>;

Shapes shapes_of(const Manifest& manifest, State state) {
    Shapes shapes;
    for (const TensorEntry& entry : manifest.tensors) {
        if (entry.state == state) shapes.emplace(entry.parameter, entry.shape);
    }
    return shapes;
}

/// `name` says in messages which tensor of the parameter it is.
void compare_shape(std::string_view name, std::span<const std::int64_t> found,
                   const NamedShape& expected, Mismatches& list) {
    if (std::ranges::equal(found, expected.shape)) return;
    list.push_back(fmt::format("{} has shape {} instead of {}", name, found, expected.shape));
}

/// Both sides must have the same weights: in the order of the model and then of the file.
void compare_weights(Shapes in_file, std::span<const NamedShape> expected, Mismatches& list) {
    for (const NamedShape& parameter : expected) {
        const auto found = in_file.find(parameter.parameter);
        if (found == in_file.end()) {
            list.push_back(fmt::format("{} is missing", parameter.parameter));
            continue;
        }
        compare_shape(parameter.parameter, found->second, parameter, list);
        in_file.erase(found);
    }
    for (const auto& [name, shape] : in_file)
        list.push_back(fmt::format("{} is not in the model", name));
}

/// Only of parameters whose weights are there: others have been reported.
void compare_moments(const Shapes& weights, const Shapes& in_file, State state,
                     std::span<const NamedShape> expected, Mismatches& list) {
    for (const NamedShape& parameter : expected) {
        if (!parameter.trainable || !weights.contains(parameter.parameter)) continue;
        const std::string name = fmt::format("{}/{}", state_folder(state), parameter.parameter);
        const auto found = in_file.find(parameter.parameter);
        if (found == in_file.end()) {
            list.push_back(name + " is missing (was the parameter frozen?)");
        } else {
            compare_shape(name, found->second, parameter, list);
        }
    }
}

void refuse(const Mismatches& list, std::string_view origin) {
    if (list.empty()) return;
    throw DataError(fmt::format("{} does not fit the model: {}", origin, fmt::join(list, "; ")));
}

}  // namespace

std::vector<std::string> differences(const WeightsSource& source,
                                     std::span<const NamedShape> expected) {
    Shapes in_file;
    for (const auto& tensor : source.tensors()) in_file.emplace(tensor.name, tensor.shape);
    Mismatches list;
    compare_weights(std::move(in_file), expected, list);
    for (const auto& tensor : source.tensors()) {
        if (tensor.unread_type.empty()) continue;
        list.push_back(
            fmt::format("{} is of type {}, which is not read", tensor.name, tensor.unread_type));
    }
    return list;
}

std::vector<std::string> differences(const Manifest& manifest, std::span<const NamedShape> expected,
                                     bool moments) {
    Mismatches list;
    const Shapes weights = shapes_of(manifest, State::kModel);
    compare_weights(weights, expected, list);
    if (!moments) return list;
    for (const State state : {State::kFirstMoment, State::kSecondMoment}) {
        compare_moments(weights, shapes_of(manifest, state), state, expected, list);
    }
    return list;
}

bool has_moments(const Manifest& manifest) {
    return manifest.progress.optimizer_step > 0 ||
           std::ranges::any_of(manifest.tensors, [](const TensorEntry& tensor) {
               return tensor.state != State::kModel;
           });
}

void check_parameters(const WeightsSource& source, std::span<const NamedShape> expected,
                      std::string_view origin) {
    refuse(differences(source, expected), origin);
}

void check_state(const Manifest& manifest, std::span<const NamedShape> expected,
                 std::string_view origin, bool moments) {
    refuse(differences(manifest, expected, moments), origin);
}

}  // namespace fullshard::checkpoint
