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

/// The float32 tensors of one file or checkpoint folder, by parameter name.
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
    /// range that does not exist too.
    virtual void read(std::string_view parameter, std::int64_t begin, std::span<float> out) = 0;
};

/// A checkpoint folder (its master weights, verified) or one that locate_checkpoint() takes, a
/// consolidated `.h5` or a `.safetensors` file of F32 tensors, told apart by their content. Throws
/// DataError for what is none of them or damaged; sizes and offsets of a safetensors header are
/// checked before use.
std::unique_ptr<WeightsSource> open_weights(const std::filesystem::path& path);

}  // namespace fullshard::checkpoint
