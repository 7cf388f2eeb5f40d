// What can be checked of a checkpoint folder without reading its tensors.
#pragma once

#include "checkpoint/format/manifest.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// Content of COMPLETE for a manifest's text: a line that `xxhsum --check` understands.
std::string complete_text(std::string_view manifest_text);

struct FolderCheck {
    std::optional<Manifest> manifest;        ///< as far as it can be trusted
    std::vector<bool> structure_whole = {};  ///< of each file in the manifest: HDF5 may read it
};

/// Calls `problem` with a sentence for each thing that is wrong with COMPLETE, the manifest, the
/// deck, and size and structure of the HDF5 files, and goes on as far as that makes sense.
FolderCheck check_folder(const std::filesystem::path& folder,
                         const std::function<void(const std::string&)>& problem);

}  // namespace fullshard::checkpoint
