// The folders of a run's checkpoints: names, commit, search and retention. POSIX only.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/save_stage.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {

/// Where run.dir keeps its checkpoints.
inline constexpr std::string_view kCheckpointsFolder = "checkpoints";
/// And the files of its tokenizer, for who exports its weights.
inline constexpr std::string_view kTokenizerFolder = "tokenizer";

/// "step-00000010"
std::string folder_name(std::int64_t step);

/// The folder a save of `step` works in: `parent/step-00000010.tmp`.
std::filesystem::path temporary_folder(const std::filesystem::path& parent, std::int64_t step);

/// Removes what earlier attempts left (every `step-*.tmp`) and makes the folder a save of `step`
/// works in. `parent` is made when missing. One process; throws RunError.
std::filesystem::path begin_save(const std::filesystem::path& parent, std::int64_t step);

/// Removes the folder of a save that failed; what cannot be removed stays, as after a crash.
void discard_save(const std::filesystem::path& temporary) noexcept;

/// Throws RunError naming both numbers when a checkpoint of `bytes` of tensors does not fit the
/// disk that `folder` is on, or would be on when it does not exist yet.
void require_space(const std::filesystem::path& folder, std::int64_t bytes);

/// Everything else is written and synced: writes effective.ini and the manifest, then COMPLETE with
/// the manifest's digest, syncs files and folder, checks it all as open_folder() does, renames to
/// the final name and syncs the parent. A finished folder of the same step steps aside as
/// `step-00000010.replaced` before the rename and is deleted after it; find_latest() takes it up if
/// a crash falls between. Returns the final folder. One process.
std::filesystem::path commit_save(const std::filesystem::path& temporary, const Manifest& manifest,
                                  const StageHook& at_stage = {});

/// Syncs a file's data to disk; every rank that wrote to it calls this. Throws RunError.
void sync_file(const std::filesystem::path& path);

/// Reads and checks COMPLETE, manifest, deck, sizes and structures of the HDF5 files: everything
/// but the tensors' bytes. A folder named after a step must hold that step. Throws DataError naming
/// what is wrong.
Manifest open_folder(const std::filesystem::path& folder);

/// A checkpoint, and why newer ones were passed over.
struct Latest {
    std::optional<std::filesystem::path> folder;
    std::vector<std::string> skipped;  ///< one sentence each, newest first
};

/// The newest whole checkpoint below `parent`, in numeric order; `.tmp` folders are reported as
/// unfinished. A missing parent has none.
Latest find_latest(const std::filesystem::path& parent);

/// Whether a save below `parent` ever finished: a folder of a step is there that is no unfinished
/// save, whole or damaged.
bool has_finished_save(const std::filesystem::path& parent);

/// What a user's path names: a checkpoint folder (whole or not), or the newest whole one of a run's
/// checkpoints folder or of the run folder above it. Throws DataError when there is none, with the
/// reasons.
Latest locate_checkpoint(const std::filesystem::path& path);

/// A run goes on after `step`: whole checkpoints of later steps, which belong to a past that is
/// left, get the suffix `.abandoned` and are read and deleted by nobody. Returns their new paths.
/// One process.
std::vector<std::filesystem::path> abandon_after(const std::filesystem::path& parent,
                                                 std::int64_t step);

/// Which whole checkpoints stay.
struct Retention {
    std::int64_t keep_last = 0;   ///< the newest ones; 0: all
    std::int64_t keep_every = 0;  ///< and steps that are a multiple of this; 0: none
};

/// Deletes the whole checkpoints that `retention` does not keep, but never `newest`, the one just
/// committed, whatever steps others hold. A folder becomes `.tmp` first,
/// so that a crash never leaves a half-deleted one that looks whole. Returns the folders deleted.
/// Only whole ones count and go: damaged ones stay for whoever wants to know why. Call it after the
/// newest is committed.
std::vector<std::filesystem::path> retain(const std::filesystem::path& parent,
                                          const Retention& retention,
                                          const std::filesystem::path& newest);

}  // namespace fullshard::checkpoint
