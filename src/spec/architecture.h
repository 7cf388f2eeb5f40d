// The families that other programs know, and their config.json.
#pragma once

#include "base/span.h"
#include "spec/gpt2.h"
#include "spec/llama.h"

#include <string>
#include <string_view>
#include <variant>

namespace fullshard::spec {

using Architecture = std::variant<Gpt2, Llama>;

ModelSpec describe(const Architecture& architecture);

/// Reads a config.json of transformers whose model_type is gpt2 or llama (versions 4 and 5:
/// rope_scaling and rope_theta, or rope_parameters). Everything that changes what the model
/// computes is read or refused; keys that do not are passed over. The padded vocabulary is
/// vocab_size. Throws DataError naming `origin` and each key that is missing, of another type, out
/// of range, or asks for what is not supported (other activations, biases of Llama, pretraining_tp,
/// ...).
Architecture parse_hf_config(std::string_view json, std::string_view origin);

/// Whether a config.json's model_type is one that parse_hf_config() reads.
bool has_known_model_type(std::string_view json);

/// What transformers reads back to the same model; vocab_size is that without padding, `weights`
/// the type that the weights beside it have.
std::string to_hf_config(const Architecture& architecture, DType weights = DType::kFloat32);

}  // namespace fullshard::spec
