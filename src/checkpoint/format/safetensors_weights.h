// Weights that lie in one safetensors file, or in several with an index.
#pragma once

#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/weights.h"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// Name of an index file ends with this.
inline constexpr std::string_view kSafetensorsIndexSuffix = ".safetensors.index.json";

/// Which file of its folder holds each tensor, and how many bytes they have together.
struct SafetensorsIndex {
    std::map<std::string, std::string> file_of;
    std::int64_t total_bytes = 0;
};

/// What readers of the Hugging Face hub expect as NAME.safetensors.index.json.
std::string to_json(const SafetensorsIndex& index);
/// Throws DataError for what is no index, and for files outside of its folder.
SafetensorsIndex read_safetensors_index(const std::filesystem::path& path);

class SafetensorsWeights : public WeightsSource {
  public:
    /// `path` is a safetensors file or an index. Throws DataError, also when index and files do not
    /// name the same tensors.
    explicit SafetensorsWeights(const std::filesystem::path& path);

    const std::vector<Tensor>& tensors() const override { return tensors_; }
    void read(std::string_view parameter, std::int64_t begin, std::span<float> out) override;

  private:
    struct Place {
        std::size_t file = 0;
        SafetensorsEntry entry;
    };
    void add_file(const std::filesystem::path& path);
    void check_index(const SafetensorsIndex& index) const;

    std::filesystem::path path_;
    std::vector<PosixFile> files_;
    std::vector<Tensor> tensors_;
    std::map<std::string, Place, std::less<>> places_;
};

}  // namespace fullshard::checkpoint
