// Names and layouts that other programs' files have for a model's parameters.
#pragma once

#include "spec/architecture.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// Whose names and layouts a file has.
enum class NamesOf : std::uint8_t { kFullShard, kTransformers, kLlamaCpp, kLlmc };

/// Where an element of ours is in their tensor.
enum class Arrangement : std::uint8_t {
    kSame,
    kTransposed,  ///< theirs is [in, out] (Conv1D of transformers), ours [out, in]
    /// Theirs has the two halves of a head's rows interleaved, as llama.cpp rotates neighbours:
    /// row j * head_size / 2 + k of ours, j = 0 or 1, is their row 2 k + j.
    kRotaryRows,
    kPaddedRows,  ///< ours may have more rows than the vocabulary: zeros
};
std::string_view name_of(Arrangement arrangement);

struct MappedTensor {
    std::string ours;
    std::vector<std::int64_t> shape;
    std::string theirs;
    std::vector<std::int64_t> their_shape;
    Arrangement arrangement = Arrangement::kSame;
};

/// All parameters that are not tied to another, in the model's order. Throws UsageError when the
/// program has no files of this family.
std::vector<MappedTensor> map_parameters(const spec::Architecture& architecture, NamesOf names);

/// A name without the prefix "transformer." or "model." that some files of transformers leave out.
std::string_view without_model_prefix(std::string_view name);

/// Their name of the head, "lm_head.weight" or "output.weight".
std::string_view head_name(NamesOf names);

/// Whether a tensor of theirs is none of the model's parameters and yet belongs to such files:
/// masks and tables that the program computes from the architecture.
bool is_computed(std::string_view theirs);

/// Sizes that the two families share.
std::int64_t vocab_size_of(const spec::Architecture& architecture);
std::int64_t head_size_of(const spec::Architecture& architecture);
bool ties_embeddings(const spec::Architecture& architecture);

/// A name with the number of its layer replaced by "{}", and the number: one line of a table for
/// all layers.
struct LayerName {
    std::string pattern;
    std::optional<std::int64_t> layer;
};
LayerName layer_name(std::string_view name);

}  // namespace fullshard::checkpoint
