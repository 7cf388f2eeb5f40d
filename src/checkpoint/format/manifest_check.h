// The rules that a manifest keeps.
#pragma once

#include "checkpoint/format/manifest.h"

#include <string_view>

namespace fullshard::checkpoint {

/// Whether HDF5 can hold a dataset of this name in one group.
bool is_parameter_name(std::string_view name);

/// Throws DataError naming `origin` and the tensor unless names are unique and possible, shapes are
/// possible, blocks cover each tensor once, and raw data lies inside the file without overlap.
void check_manifest(const Manifest& manifest, std::string_view origin);

}  // namespace fullshard::checkpoint
