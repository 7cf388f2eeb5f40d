// Weights of other programs as a checkpoint.
#pragma once

#include "checkpoint/format/workers.h"
#include "spec/architecture.h"

#include <filesystem>
#include <optional>
#include <vector>

namespace fullshard::checkpoint {

struct ImportOptions {
    bool overwrite = false;  ///< the folder's checkpoint of step 0 and tokenizer are replaced
    /// Of GPT-2 or Llama; architecture_of(source) when there is none.
    std::optional<spec::Architecture> architecture = {};
    ProgressReport progress = {};
};

struct Imported {
    std::filesystem::path folder;  ///< the checkpoint's
    std::optional<spec::Architecture> architecture;
    std::vector<std::filesystem::path> tokenizer;  ///< copies of the files beside the weights
};

/// Writes the weights in `source` as the checkpoint of step 0 in `parent`, a run's folder of
/// checkpoints: float32 weights without moments, as has_moments() knows them, so that training
/// begins with zero ones. Of a known architecture they are what open_model_weights() reads, else
/// what open_weights() does, names as they are. Files of a tokenizer beside safetensors go to
/// tokenizer_folder(parent). The checkpoint appears whole or not at all. Memory is bounded by a
/// block for each thread. Throws UsageError when `parent` holds a checkpoint of step 0 already, a
/// tokenizer of another model is in the way or a tensor's name is impossible, DataError for a
/// damaged source, RunError when writing fails.
Imported import_weights(const std::filesystem::path& source, const std::filesystem::path& parent,
                        const ImportOptions& options = {});

}  // namespace fullshard::checkpoint
