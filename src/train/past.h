// What a run finds before it starts: the checkpoint it goes on from, or an earlier run in its
// folder.
#pragma once

#include "checkpoint/parallel/load.h"
#include "comm/group.h"
#include "config/deck.h"
#include "train/run_folder.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

/// Known to all ranks alike.
struct Past {
    std::optional<checkpoint::Chosen> checkpoint;
    FolderUse folder_use = FolderUse::kNew;
    /// Of the run that goes on, starts again or is finished, with the batch sizes it had; none for
    /// a new run and for imported weights.
    std::optional<config::Deck> deck;
    std::int64_t steps_done = 0;     ///< by the run that goes on or is finished
    bool finished = false;           ///< nothing is left to do
    std::vector<std::string> notes;  ///< what the log should say about it
};

/// Looks where run.dir, run.overwrite and checkpoint.resume say. With checkpoint.resume = auto a
/// run of the same deck in run.dir that was interrupted before its first checkpoint starts again,
/// and a finished one stays finished. With a path, a run in run.dir that began with the same path
/// goes on, too: a job that is put back into the queue repeats its command. Throws AgreedError when
/// a checkpoint is damaged or run.dir holds anything else. Changes nothing. Collective.
Past find_past(const config::Deck& deck, const comm::Group& job);

/// The deck of the run that wrote a checkpoint, with the batch sizes it had; none for imported
/// weights, which come from no run.
std::optional<config::Deck> deck_of_checkpoint(const checkpoint::Manifest& manifest);

/// `deck` may start again the run of the deck `before` in its run.dir, or leave it as it is because
/// it is finished. Throws UsageError for the run of another deck, one that is finished after fewer
/// steps, and one whose checkpoints are gone.
FolderUse use_of_earlier_run(const EarlierRun& earlier, const config::Deck& before,
                             const config::Deck& deck);

}  // namespace fullshard::train
