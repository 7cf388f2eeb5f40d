// All ranks write a run's checkpoints together.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/save_stage.h"
#include "checkpoint/parallel/background_job.h"
#include "checkpoint/parallel/piece.h"
#include "checkpoint/parallel/save_layout.h"
#include "checkpoint/parallel/writers.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace fullshard::checkpoint {

/// Writes `parent/step-N`, N being a header's `progress.step`: the weights of each parameter, and
/// the moments of trainable ones. Files are laid out first, then all ranks write their pieces, all
/// is synced, then rank 0 commits: until that instant the folder has a temporary name that no
/// reader takes. A header's files and tensors are filled in here.
///
/// An error of any rank (disk full, permissions) is thrown as the same AgreedError on all of them,
/// and the unfinished folder is removed; earlier checkpoints are untouched. Calls are collective
/// where nothing else is said. The pieces are of the same places in every save,
/// and those of all ranks together cover every element once.
class Saver {
  public:
    Saver(const SavingRanks& ranks, std::filesystem::path parent,
          std::vector<NamedShape> parameters, StageHook at_stage = {});

    /// Writes through parallel HDF5 and returns the committed folder. Nothing is in flight.
    std::filesystem::path save(const Manifest& header, std::span<const Piece> pieces);

    /// Lets a thread of each rank copy the pieces, in their order, and write the copy. Until
    /// wait_for_copy() has returned, their memory stays as it is. Nothing is in flight.
    void start(const Manifest& header, std::span<const Piece> pieces);
    bool in_flight() const { return pending_.has_value(); }
    /// Returns when the first `elements` elements of the pieces have been copied. Not collective.
    void wait_for_copy(std::int64_t elements) const { writer_.wait_for_copy(elements); }
    /// Goes on with what start() began: when all ranks have written, a thread of rank 0 commits,
    /// and when that is done its folder is returned. Never waits for a disk.
    std::optional<std::filesystem::path> poll();
    /// The same, and waits for the end. After `timeout_s` the save is given up: an AgreedError.
    std::filesystem::path wait(double timeout_s);

    /// Of this rank's copy. Not collective.
    std::int64_t staging_bytes() const { return writer_.staging_bytes(); }

  private:
    struct Pending {
        Manifest header;
        std::filesystem::path folder;
        bool committing = false;  ///< all ranks have written
    };

    /// Makes the folder and its files.
    std::filesystem::path begin(const Manifest& header, std::span<const Piece> pieces);
    /// The manifest of what all ranks have written; its files are read when it is committed.
    Manifest manifest_of(const Manifest& header, std::span<const WrittenBlock> written) const;
    /// What this rank does for the save in flight has ended.
    bool step_ended() const;
    /// The same is true of all ranks: begins to commit, or ends it and returns the folder.
    std::optional<std::filesystem::path> advance();
    /// Removes the folder of a save that failed, then throws on.
    template <typename Work>
    auto or_discard(const std::filesystem::path& folder, Work work);

    SavingRanks ranks_;
    std::filesystem::path parent_;
    std::vector<NamedShape> parameters_;
    StageHook at_stage_;
    std::optional<SaveLayout> layout_;  ///< from the first save on
    BackgroundWriter writer_;
    BackgroundJob<std::filesystem::path> committer_;  ///< of rank 0
    std::shared_ptr<std::atomic<bool>> given_up_;     ///< of the save in flight
    std::optional<Pending> pending_;
};

}  // namespace fullshard::checkpoint
