#include "checkpoint/export/shards.h"

#include "checkpoint/format/safetensors_weights.h"

#include <fmt/format.h>

#include <utility>

namespace fullshard::checkpoint {

std::int64_t Shard::bytes() const {
    std::int64_t bytes = 0;
    for (const ExportTensor& tensor : tensors) bytes += tensor.bytes();
    return bytes;
}

std::vector<Shard> cut_into_shards(const std::filesystem::path& out,
                                   std::vector<ExportTensor> tensors, std::int64_t max_bytes) {
    std::vector<Shard> shards;
    std::int64_t bytes = 0;
    for (const ExportTensor& tensor : tensors) {
        if (shards.empty() || bytes > max_bytes - tensor.bytes()) {
            shards.emplace_back();
            bytes = 0;
        }
        bytes += tensor.bytes();
        shards.back().tensors.push_back(tensor);
    }
    if (shards.size() == 1) {
        shards.front().path = out;
        return shards;
    }
    std::size_t number = 0;
    for (Shard& shard : shards) {
        shard.path =
            out.parent_path() / fmt::format("{}-{:05}-of-{:05}{}", out.stem().string(), ++number,
                                            shards.size(), out.extension().string());
    }
    return shards;
}

std::filesystem::path index_path(const std::filesystem::path& out) {
    return out.parent_path() / fmt::format("{}{}", out.stem().string(), kSafetensorsIndexSuffix);
}

std::string index_text(const std::vector<Shard>& shards) {
    SafetensorsIndex index;
    for (const Shard& shard : shards) {
        index.total_bytes += shard.bytes();
        for (const ExportTensor& tensor : shard.tensors) {
            index.file_of[tensor.name] = shard.path.filename().string();
        }
    }
    return to_json(index);
}

}  // namespace fullshard::checkpoint
