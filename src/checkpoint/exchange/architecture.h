// Which model a file or folder holds.
#pragma once

#include "spec/architecture.h"

#include <filesystem>
#include <optional>

namespace fullshard::checkpoint {

/// As the file itself says: config.json (the file, in the folder, or beside a safetensors file or
/// index), the metadata of a GGUF file, the header of an llm.c file, the manifest of a checkpoint.
/// Nothing for other families, for an .h5 file, for safetensors without a config.json and for
/// checkpoints that do not say. The head of a GGUF file is tied when the file has none, or a copy
/// of the table. A GGUF file of GPT-2 says nothing of dropout: it gets the published one; llm.c has
/// none. Throws DataError for what is damaged, or of a known family and yet not supported.
std::optional<spec::Architecture> architecture_of(const std::filesystem::path& path);

/// Reads a config.json. Throws DataError, for other families too.
spec::Architecture read_hf_config(const std::filesystem::path& path);

}  // namespace fullshard::checkpoint
