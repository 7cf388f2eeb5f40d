// A checkpoint's model weights as one file for other programs.
#pragma once

#include "checkpoint/format/verify.h"

#include <filesystem>

namespace fullshard::checkpoint {

struct ConsolidateOptions {
    bool overwrite = false;  ///< an existing output is replaced
    ProgressReport progress{};
};

/// Writes the float32 master weights of a checkpoint folder to `out`, verified while they are read.
/// The name decides the format: `.h5` has full-shape datasets under the parameters' names at the
/// root, in the model's order; `.safetensors` has F32 tensors. Memory is bounded by one digest
/// block (4 MiB) and the manifest. The output appears whole or not at all: it is written beside
/// `out` as `out` + ".tmp", synced and renamed. Throws UsageError for another extension or an
/// existing output, DataError for a damaged checkpoint, RunError when writing fails.
void consolidate(const std::filesystem::path& folder, const std::filesystem::path& out,
                 const ConsolidateOptions& options);

}  // namespace fullshard::checkpoint
