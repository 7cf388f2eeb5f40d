// The model that a GGUF file's metadata describes.
#pragma once

#include "spec/architecture.h"

#include <filesystem>
#include <optional>

namespace fullshard::checkpoint {

/// Nothing unless general.architecture is llama or gpt2. Throws DataError.
std::optional<spec::Architecture> architecture_of_gguf(const std::filesystem::path& path);

}  // namespace fullshard::checkpoint
