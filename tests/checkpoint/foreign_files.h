// Files of other programs with a small model's weights, written without the code under test.
#pragma once

#include "spec/architecture.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fullshard::checkpoint::toy {

struct ForeignTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
    std::string dtype = "F32";  ///< in safetensors; of "BOOL", a byte a value
};

/// A GPT-2 of two layers and width 4, vocabulary 5 padded to 8; a Llama of two layers and width 8
/// with two heads of 6 that share one of keys.
spec::Gpt2 small_gpt2();
spec::Llama small_llama();

/// Values of one of our parameters, no two alike; zeros in the padding.
std::vector<float> values_of(const spec::ParameterSpec& parameter);

/// All of a model's weights as transformers has them, in no order.
std::vector<ForeignTensor> of_transformers(const spec::Architecture& architecture);
/// As llama.cpp has them.
std::vector<ForeignTensor> of_llama_cpp(const spec::Architecture& architecture);
/// Under our names and in our layout.
std::vector<ForeignTensor> of_fullshard(const spec::Architecture& architecture);

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<ForeignTensor>& tensors);
/// `pairs` are the bytes of `pair_count` keys with their values.
void write_gguf(const std::filesystem::path& path, const std::vector<ForeignTensor>& tensors,
                const std::string& pairs, std::uint64_t pair_count);
/// Metadata of a model as llama.cpp's converter writes it.
struct GgufPairs {
    std::string bytes;
    std::uint64_t count = 0;
};
GgufPairs metadata_of(const spec::Llama& model);
/// Bytes of a GPT-2 file of llm.c, fp32, vocabulary padded to padded_vocab_size.
std::string llmc_bytes(const spec::Gpt2& model);

}  // namespace fullshard::checkpoint::toy
