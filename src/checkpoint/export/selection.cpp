#include "checkpoint/export/selection.h"

#include "base/error.h"
#include "checkpoint/format/row_major.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

namespace fullshard::checkpoint {
namespace {

bool fits(const std::string& pattern, const std::string& parameter) {
    return fnmatch(pattern.c_str(), parameter.c_str(), 0) == 0;
}

bool fits_one(const std::vector<std::string>& patterns, const std::string& parameter) {
    return std::ranges::any_of(patterns,
                               [&](const auto& pattern) { return fits(pattern, parameter); });
}

/// A pattern without effect is a mistake of spelling.
void check_patterns(const Manifest& manifest, const std::vector<std::string>& patterns,
                    std::string_view option) {
    for (const std::string& pattern : patterns) {
        const bool used = std::ranges::any_of(manifest.tensors, [&](const TensorEntry& tensor) {
            return fits(pattern, tensor.parameter);
        });
        if (used) continue;
        throw UsageError(fmt::format("{} '{}' fits none of the parameters, such as '{}'", option,
                                     pattern, manifest.tensors.front().parameter));
    }
}

}  // namespace

std::vector<const TensorEntry*> select_tensors(const Manifest& manifest,
                                               const Selection& selection) {
    const auto is_weight = [](const TensorEntry& tensor) { return tensor.state == State::kModel; };
    if (std::ranges::none_of(manifest.tensors, is_weight)) {
        throw DataError("the checkpoint holds no model weights");
    }
    check_patterns(manifest, selection.include, "--include");
    check_patterns(manifest, selection.exclude, "--exclude");
    std::vector<const TensorEntry*> selected;
    for (const TensorEntry& tensor : manifest.tensors) {
        if (!is_weight(tensor) && !selection.with_optimizer) continue;
        if (!selection.include.empty() && !fits_one(selection.include, tensor.parameter)) continue;
        if (fits_one(selection.exclude, tensor.parameter)) continue;
        selected.push_back(&tensor);
    }
    if (selected.empty()) {
        throw UsageError("--include and --exclude leave no parameter over");
    }
    return selected;
}

std::int64_t ExportTensor::numel() const {
    return checkpoint::numel(shape);
}

ExportTensor unchanged(const TensorEntry& tensor, DType dtype) {
    return {.source = &tensor, .dtype = dtype, .name = tensor.parameter, .shape = tensor.shape};
}

}  // namespace fullshard::checkpoint
