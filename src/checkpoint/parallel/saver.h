// All ranks write a run's checkpoints together.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/save_stage.h"
#include "checkpoint/parallel/piece.h"
#include "checkpoint/parallel/save_layout.h"
#include "checkpoint/parallel/writers.h"

#include <filesystem>
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
/// and the unfinished folder is removed; earlier checkpoints are untouched. All calls but
/// in_flight() and staging_bytes() are collective. The pieces are of the same places in every save,
/// and those of all ranks together cover every element once.
class Saver {
  public:
    Saver(const SavingRanks& ranks, std::filesystem::path parent,
          std::vector<NamedShape> parameters, StageHook at_stage = {});

    /// Writes through parallel HDF5 and returns the committed folder. Nothing is in flight.
    std::filesystem::path save(const Manifest& header, std::span<const Piece> pieces);

    /// Copies the pieces and lets a thread of each rank write them. Nothing is in flight.
    void start(const Manifest& header, std::span<const Piece> pieces);
    bool in_flight() const { return pending_.has_value(); }
    /// Commits what start() began when all ranks have written it, and returns its folder; nothing
    /// before. Blocks for the commit only.
    std::optional<std::filesystem::path> poll();
    /// The same, and waits for the writing. After `timeout_s` the save is given up: an AgreedError.
    std::filesystem::path wait(double timeout_s);

    /// Of this rank's copy.
    std::int64_t staging_bytes() const { return writer_.staging_bytes(); }

  private:
    struct Pending {
        Manifest header;
        std::filesystem::path folder;
    };

    /// Makes the folder and its files.
    std::filesystem::path begin(const Manifest& header, std::span<const Piece> pieces);
    std::filesystem::path commit(const Manifest& header, const std::filesystem::path& folder,
                                 std::span<const WrittenBlock> written);
    /// The writing has ended on all ranks.
    std::filesystem::path finish();
    /// Removes the folder of a save that failed, then throws on.
    template <typename Work>
    auto or_discard(const std::filesystem::path& folder, Work work);

    SavingRanks ranks_;
    std::filesystem::path parent_;
    std::vector<NamedShape> parameters_;
    StageHook at_stage_;
    std::optional<SaveLayout> layout_;  ///< from the first save on
    BackgroundWriter writer_;
    std::optional<Pending> pending_;
};

}  // namespace fullshard::checkpoint
