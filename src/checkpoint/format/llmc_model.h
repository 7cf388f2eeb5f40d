// Model files of llm.c: GPT-2, one header and the tensors one after another.
#pragma once

#include "base/span.h"
#include "checkpoint/format/posix_file.h"
#include "checkpoint/format/weights.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

inline constexpr std::int64_t kLlmcHeaderBytes = 1024;
/// llm.c pads the vocabulary to a multiple of this.
inline constexpr std::int64_t kLlmcVocabularyUnit = 128;

/// What the header says. The inner width is 4 d_model, the head is tied.
struct LlmcModel {
    std::int64_t max_positions = 0;
    std::int64_t vocab_size = 0;
    std::int64_t num_layers = 0;
    std::int64_t num_heads = 0;
    std::int64_t d_model = 0;
    std::int64_t padded_vocab_size = 0;
    DType dtype = DType::kFloat32;  ///< of all tensors: version 3 of the format, or bf16, version 5

    friend bool operator==(const LlmcModel&, const LlmcModel&) = default;
};

/// A tensor, of one layer where it has one for each: named "wte", or "qkvw.3" in layer 3.
struct LlmcTensor {
    std::string name;
    std::vector<std::int64_t> shape;  ///< matrices [out, in]; the token table without padding
    std::int64_t file_offset = 0;     ///< of its first byte
};

/// In the file's order.
std::vector<LlmcTensor> llmc_tensors(const LlmcModel& model);
/// Of the whole file.
std::int64_t llmc_file_bytes(const LlmcModel& model);

/// The magic number in front of a model file.
inline constexpr std::int32_t kLlmcModelMagic = 20240326;
/// What other magic numbers of llm.c stand for, "a file of tokens"; empty for any other number.
std::string_view llmc_kind(std::int32_t magic);

/// The 1024 bytes of a header. `model` is of fp32 or bf16.
std::array<std::byte, kLlmcHeaderBytes> make_llmc_header(const LlmcModel& model);
/// Trusts nothing in the file: throws DataError naming file and field for another magic or version,
/// sizes that are impossible, and a file that is not exactly as long as they say.
LlmcModel read_llmc_header(const PosixFile& file);

class LlmcWeights : public WeightsSource {
  public:
    /// Throws DataError.
    explicit LlmcWeights(const std::filesystem::path& path);

    const std::vector<Tensor>& tensors() const override { return tensors_; }
    void read(std::string_view parameter, std::int64_t begin, std::span<float> out) override;

  private:
    PosixFile file_;
    LlmcModel model_;
    std::vector<Tensor> tensors_;
    std::map<std::string, LlmcTensor, std::less<>> places_;
};

}  // namespace fullshard::checkpoint
