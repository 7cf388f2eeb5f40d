#include "checkpoint/format/safetensors_weights.h"

#include "base/error.h"
#include "base/files.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/values.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>
#include <utility>

namespace fullshard::checkpoint {

namespace fs = std::filesystem;

std::string to_json(const SafetensorsIndex& index) {
    const nlohmann::ordered_json json = {{"metadata", {{"total_size", index.total_bytes}}},
                                         {"weight_map", index.file_of}};
    return json.dump(2) + "\n";
}

SafetensorsIndex read_safetensors_index(const fs::path& path) {
    const auto fail = [&](std::string_view problem) {
        throw DataError(fmt::format("{}: {}", path.string(), problem));
    };
    const auto json = nlohmann::json::parse(read_file(path), nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded() || !json.is_object()) fail("is no JSON object");
    const auto map = json.find("weight_map");
    if (map == json.end() || !map->is_object()) fail("weight_map must be an object");
    SafetensorsIndex index;
    for (const auto& [tensor, file] : map->items()) {
        if (!file.is_string()) fail(fmt::format("file of tensor '{}' must be a text", tensor));
        const auto name = file.get<std::string>();
        if (fs::path(name).filename() != name || name.starts_with('.')) {
            fail(fmt::format("file '{}' is not in the index's folder", name));
        }
        index.file_of[tensor] = name;
    }
    if (index.file_of.empty()) fail("names no tensors");
    return index;
}

SafetensorsWeights::SafetensorsWeights(const fs::path& path) : path_(path) {
    if (!path.string().ends_with(kSafetensorsIndexSuffix)) {
        add_file(path);
        return;
    }
    const SafetensorsIndex index = read_safetensors_index(path);
    std::set<std::string> files;
    for (const auto& [tensor, file] : index.file_of) files.insert(file);
    for (const std::string& file : files) add_file(path.parent_path() / file);
    check_index(index);
}

void SafetensorsWeights::add_file(const fs::path& path) {
    files_.push_back(PosixFile::open(path));
    for (SafetensorsEntry& entry : read_safetensors_header(files_.back())) {
        tensors_.push_back({entry.name, entry.shape, entry.unread_type});
        std::string name = entry.name;
        const auto [at, added] =
            places_.try_emplace(std::move(name), files_.size() - 1, std::move(entry));
        if (!added) {
            throw DataError(fmt::format("{} holds tensor '{}', and so does {}", path.string(),
                                        at->first, files_[at->second.file].path().string()));
        }
    }
}

void SafetensorsWeights::check_index(const SafetensorsIndex& index) const {
    const auto fail = [&](const std::string& tensor, std::string_view problem) {
        throw DataError(fmt::format("{}: tensor '{}' {}", path_.string(), tensor, problem));
    };
    for (const auto& [tensor, file] : index.file_of) {
        const auto found = places_.find(tensor);
        if (found == places_.end() || files_[found->second.file].path().filename() != file) {
            fail(tensor, fmt::format("is not in {}", file));
        }
    }
    for (const auto& [tensor, place] : places_) {
        if (!index.file_of.contains(tensor)) {
            fail(tensor, fmt::format("is in {} only", files_[place.file].path().string()));
        }
    }
}

void SafetensorsWeights::read(std::string_view parameter, std::int64_t begin,
                              std::span<float> out) {
    const auto found = places_.find(parameter);
    if (found == places_.end()) {
        throw DataError(fmt::format("{} has no tensor {}", path_.string(), parameter));
    }
    const auto& [file, entry] = found->second;
    if (!entry.unread_type.empty()) {
        throw DataError(fmt::format("{}: {} is of type {}, only F32, BF16 and F16 are read",
                                    files_[file].path().string(), parameter, entry.unread_type));
    }
    require_range(files_[file], parameter, numel(entry.shape), begin, std::ssize(out));
    read_values(files_[file], entry.file_offset + begin * size_of(entry.dtype), entry.dtype, out);
}

}  // namespace fullshard::checkpoint
