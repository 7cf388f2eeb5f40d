// Outputs of several files.
#pragma once

#include "checkpoint/export/selection.h"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace fullshard::checkpoint {

/// One of the files that tensors are cut into.
struct Shard {
    std::filesystem::path path;
    std::vector<ExportTensor> tensors;

    std::int64_t bytes() const;
};

/// Tensors in their order, as many in one file as stay below `max_bytes`; a larger one has a file
/// of its own. A single file is called `out`, several are NAME-00001-of-00003.safetensors for an
/// `out` of NAME.safetensors.
std::vector<Shard> cut_into_shards(const std::filesystem::path& out,
                                   std::vector<ExportTensor> tensors, std::int64_t max_bytes);

/// NAME.safetensors.index.json
std::filesystem::path index_path(const std::filesystem::path& out);

/// Text of the index of shards.
std::string index_text(const std::vector<Shard>& shards);

}  // namespace fullshard::checkpoint
