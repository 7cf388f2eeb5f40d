// Weights that lie in a GGUF file.
#pragma once

#include "checkpoint/format/gguf.h"
#include "checkpoint/format/weights.h"

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// Tensors under the names that llama.cpp gives them, quantised ones as the numbers they stand for.
class GgufWeights : public WeightsSource {
  public:
    /// Throws DataError.
    explicit GgufWeights(const std::filesystem::path& path);

    const std::vector<Tensor>& tensors() const override { return tensors_; }
    /// Reads and dequantises the blocks that hold a part of the range, in pieces of bounded size.
    void read(std::string_view parameter, std::int64_t begin, std::span<float> out) override;

  private:
    PosixFile file_;
    std::vector<Tensor> tensors_;
    std::map<std::string, GgufTensor, std::less<>> places_;
};

}  // namespace fullshard::checkpoint
