// A checkpoint's tensors as files for other programs.
#pragma once

#include "checkpoint/export/container.h"
#include "checkpoint/export/selection.h"
#include "checkpoint/format/workers.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::checkpoint {

/// Which of several processes this one is; they take the files of a sharded output in turn.
struct Copy {
    std::int64_t index = 0;
    std::int64_t count = 1;
};

struct ConsolidateOptions {
    std::optional<FileFormat> format = {};  ///< by the output's name when there is none
    DType dtype = DType::kFloat32;          ///< of weights; moments stay float32
    Selection selection = {};
    std::int64_t max_shard_bytes = 5'000'000'000;         ///< of tensors in one safetensors file
    std::int64_t memory_bytes = std::int64_t{256} << 20;  ///< most memory of the process
    Copy copy = {};
    bool overwrite = false;  ///< existing outputs are replaced
    /// kHuggingFace: where the tokenizer's files are; by default where the run keeps them, if it
    /// has any.
    std::optional<std::filesystem::path> tokenizer = {};
    ProgressReport progress = {};
};

struct Consolidated {
    std::vector<std::filesystem::path> files;       ///< of tensors, that this copy wrote
    std::vector<std::filesystem::path> companions;  ///< and beside them: config.json, tokenizer
    bool complete = true;          ///< all files are there; false while other copies work on theirs
    std::int64_t bytes_found = 0;  ///< of tensors, taken over from an earlier attempt
    /// Parameters with the number of finite values that became infinite in the cast.
    std::vector<std::pair<std::string, std::int64_t>> overflowed;
};

/// Writes tensors of a checkpoint folder to `out`, verified while they are read: HDF5 with
/// full-shape datasets, safetensors (several files and an index when it would be larger than a
/// shard may be), or a PyTorch file. Of a checkpoint that says that it holds a GPT-2 or Llama, also
/// a folder that transformers loads (config.json, model.safetensors in its names and layouts, the
/// tokenizer's files; the weights come last), and of GPT-2 a model file of llm.c. Each output
/// appears whole or not at all: it is written beside its place as NAME.tmp, synced and renamed; an
/// index comes last. What a killed process leaves (NAME.tmp and NAME.tmp.journal) the same command
/// takes up again. Throws UsageError for options that do not fit together and for existing outputs,
/// DataError for a damaged checkpoint, RunError when writing fails.
Consolidated consolidate(const std::filesystem::path& folder, const std::filesystem::path& out,
                         const ConsolidateOptions& options = {});

}  // namespace fullshard::checkpoint
