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

/// A sentence for each parameter that only one side has, or has in another shape.
std::vector<std::string> differences(const WeightsSource& source,
                                     std::span<const NamedShape> expected);
/// The same for a checkpoint, and with `moments` for each trainable parameter's; those of a frozen
/// one may be there and are not needed.
std::vector<std::string> differences(const Manifest& manifest, std::span<const NamedShape> expected,
                                     bool moments = true);

/// A checkpoint from before the first update may leave out all moments: they are zero.
bool has_moments(const Manifest& manifest);

/// Throws DataError listing every parameter that only one side has, or has in another shape.
/// `origin` names the file.
void check_parameters(const WeightsSource& source, std::span<const NamedShape> expected,
                      std::string_view origin);

/// The same for a checkpoint.
void check_state(const Manifest& manifest, std::span<const NamedShape> expected,
                 std::string_view origin, bool moments = true);

}  // namespace fullshard::checkpoint
