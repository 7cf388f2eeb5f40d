// The files of a tokenizer, which go with a model's weights.
#pragma once

#include <filesystem>
#include <vector>

namespace fullshard::checkpoint {

/// Where a run keeps them: beside its folder of checkpoints, or inside a folder of checkpoints that
/// belongs to no run.
std::filesystem::path tokenizer_folder(const std::filesystem::path& checkpoints);

/// Files in `folder` by the names that tokenizers of transformers, sentencepiece and FullShard
/// have, and what generation needs to know; sorted. Empty when there is no such folder.
std::vector<std::filesystem::path> tokenizer_files_in(const std::filesystem::path& folder);

/// Throws UsageError when a file of that name and of other content is in `folder`.
void require_room(const std::vector<std::filesystem::path>& files,
                  const std::filesystem::path& folder);

/// Each appears whole or not at all; the folder is made when missing. Throws RunError. Returns the
/// copies.
std::vector<std::filesystem::path> copy_files(const std::vector<std::filesystem::path>& files,
                                              const std::filesystem::path& folder);

}  // namespace fullshard::checkpoint
