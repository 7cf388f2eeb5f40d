// Model weights, whatever file holds them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// Tensors of one file or checkpoint folder, by parameter name, as float32.
class WeightsSource {
  public:
    struct Tensor {
        std::string name;
        std::vector<std::int64_t> shape;
    };
    virtual ~WeightsSource() = default;
    /// In the file's order.
    virtual const std::vector<Tensor>& tensors() const = 0;
    /// Elements [begin, begin + out.size()) in row-major order. Throws DataError, for a tensor or
    /// range that does not exist too. Several threads may read.
    virtual void read(std::string_view parameter, std::int64_t begin, std::span<float> out) = 0;
};

/// A checkpoint folder (its master weights, verified) or one that locate_checkpoint() takes, a
/// consolidated `.h5`, a `.safetensors` file, or a `.safetensors.index.json` beside several, told
/// apart by their content and name. Values of F32, BF16 and F16 are taken exactly. Moments in a
/// consolidated file are passed over. Throws DataError for what is none of them or damaged; sizes
/// and offsets of a safetensors header are checked before use.
std::unique_ptr<WeightsSource> open_weights(const std::filesystem::path& path);

}  // namespace fullshard::checkpoint
