#include "checkpoint/export/model_tensors.h"

#include "base/error.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

namespace fullshard::checkpoint {
namespace {

/// Whether a tensor has the shape of `mapped`, or that and more rows of padding.
bool fits(const TensorEntry& tensor, const MappedTensor& mapped) {
    if (mapped.arrangement != Arrangement::kPaddedRows) return tensor.shape == mapped.shape;
    return tensor.shape.size() == 2 && tensor.shape[0] >= mapped.their_shape[0] &&
           tensor.shape[1] == mapped.their_shape[1];
}

}  // namespace

spec::Architecture exported_architecture(const Manifest& manifest, std::string_view origin) {
    if (manifest.architecture.empty()) {
        throw UsageError(
            fmt::format("{} does not say which model it holds, as checkpoints of the families gpt2 "
                        "and llama do: --format safetensors writes its tensors as they are",
                        origin));
    }
    return spec::parse_hf_config(manifest.architecture,
                                 fmt::format("{}: {}: architecture", origin, kManifestFile));
}

std::vector<ExportTensor> exported_tensors(const Manifest& manifest,
                                           const spec::Architecture& architecture, NamesOf names,
                                           DType dtype) {
    std::map<std::string_view, const TensorEntry*> there;
    for (const TensorEntry& tensor : manifest.tensors) {
        if (tensor.state == State::kModel) there.emplace(tensor.parameter, &tensor);
    }
    std::vector<ExportTensor> tensors;
    std::vector<std::string> problems;
    for (MappedTensor& mapped : map_parameters(architecture, names)) {
        const auto found = there.find(mapped.ours);
        if (found == there.end()) {
            problems.push_back(fmt::format("{} is missing", mapped.ours));
            continue;
        }
        if (!fits(*found->second, mapped)) {
            problems.push_back(fmt::format("{} has shape [{}] instead of [{}]", mapped.ours,
                                           fmt::join(found->second->shape, ", "),
                                           fmt::join(mapped.shape, ", ")));
        }
        tensors.push_back({.source = found->second,
                           .dtype = dtype,
                           .name = std::move(mapped.theirs),
                           .shape = std::move(mapped.their_shape),
                           .transposed = mapped.arrangement == Arrangement::kTransposed});
        there.erase(found);
    }
    for (const auto& [name, tensor] : there) {
        problems.push_back(fmt::format("{} is not in the model", name));
    }
    if (!problems.empty()) {
        throw DataError(fmt::format("the checkpoint does not fit the model that it names: {}",
                                    fmt::join(problems, "; ")));
    }
    return tensors;
}

LlmcModel llmc_model_of(const spec::Architecture& architecture, DType dtype) {
    const auto* gpt2 = std::get_if<spec::Gpt2>(&architecture);
    if (gpt2 == nullptr) throw UsageError("--format llmc: llm.c's model files are for GPT-2 only");
    std::string problems;
    const auto require = [&](bool possible, std::string_view problem) {
        if (!possible) problems += fmt::format("{}{}", problems.empty() ? "" : "; ", problem);
    };
    require(dtype != DType::kFloat16, "it knows fp32 and bf16, not fp16");
    require(gpt2->tie_embeddings, "its head is tied to the token table, this model's is not");
    require(gpt2->d_ff == 4 * gpt2->d_model, "its inner width is 4 times the model's");
    require(gpt2->norm_eps == 1e-5, "its layer norms have an epsilon of 1e-5");
    if (!problems.empty()) throw UsageError("--format llmc: " + problems);
    const std::int64_t units = (gpt2->vocab_size + kLlmcVocabularyUnit - 1) / kLlmcVocabularyUnit;
    return {.max_positions = gpt2->max_positions,
            .vocab_size = gpt2->vocab_size,
            .num_layers = gpt2->num_layers,
            .num_heads = gpt2->num_heads,
            .d_model = gpt2->d_model,
            .padded_vocab_size = units * kLlmcVocabularyUnit,
            .dtype = dtype};
}

}  // namespace fullshard::checkpoint
