// Do a file's tensors fit a model?
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/weights.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// A parameter as files know it. Parameters that are tied are one, under the first one's name.
struct NamedShape {
    std::string parameter;
    std::vector<std::int64_t> shape;
    bool trainable = true;  ///< has moments
};

/// Throws DataError listing every parameter that only one side has, or has in another shape.
/// `origin` names the file.
void check_parameters(const WeightsSource& source, std::span<const NamedShape> expected,
                      std::string_view origin);

/// The same for a checkpoint, which must also have the moments of every trainable parameter; those
/// of a frozen one may be there and are not needed.
void check_state(const Manifest& manifest, std::span<const NamedShape> expected,
                 std::string_view origin);

}  // namespace fullshard::checkpoint
