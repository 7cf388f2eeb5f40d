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
        std::string unread_type = {};  ///< "I64" or alike: there, but read() refuses it
    };
    virtual ~WeightsSource() = default;
    /// In the file's order.
    virtual const std::vector<Tensor>& tensors() const = 0;
    /// Elements [begin, begin + out.size()) in row-major order. Throws DataError, for a tensor or
    /// range that does not exist too. Several threads may read.
    virtual void read(std::string_view parameter, std::int64_t begin, std::span<float> out) = 0;
};

/// What holds weights.
enum class WeightsKind : std::uint8_t { kCheckpoint, kHdf5, kSafetensors, kGguf, kLlmc };

struct WeightsPlace {
    WeightsKind kind = WeightsKind::kCheckpoint;
    std::filesystem::path path;  ///< of the checkpoint's folder, or of the file or index
};

/// What a user's path names: a checkpoint folder or one that locate_checkpoint() takes, another
/// folder with model.safetensors, model.safetensors.index.json or a single .safetensors or .gguf
/// file, or a file: a consolidated `.h5`, `.safetensors` or `.safetensors.index.json`, a GGUF file
/// of llama.cpp, a GPT-2 model of llm.c. Files are told apart by their first bytes, those of
/// safetensors, which have none of their own, by name. Throws DataError for what is none of them.
WeightsPlace locate_weights(const std::filesystem::path& path);

/// Weights under the names that the file has for them; see checkpoint/exchange for the names of a
/// model. Of a checkpoint these are the master weights, verified. Values of F32, BF16 and F16 are
/// taken exactly, quantised ones are dequantised as they are read. Moments in a consolidated file
/// are passed over. Throws DataError as locate_weights() does and for what is damaged; sizes and
/// offsets are checked before use.
std::unique_ptr<WeightsSource> open_weights(const std::filesystem::path& path);

}  // namespace fullshard::checkpoint
