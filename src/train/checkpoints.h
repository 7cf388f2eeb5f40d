// A run's checkpoints: which memory goes where in the files, and when.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/parallel/load.h"
#include "checkpoint/parallel/piece.h"
#include "checkpoint/parallel/saver.h"
#include "comm/group.h"
#include "comm/topology.h"
#include "config/deck.h"
#include "optim/adamw.h"
#include "shard/layout.h"
#include "shard/unit_store.h"
#include "train/owned_pieces.h"
#include "train/state_view.h"

#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

/// What is saved and restored; everything outlives the object.
struct SavedState {
    const comm::Group& world;
    const comm::Group& replicas;  ///< the ranks that own the same ranges
    const shard::Layout& layout;
    shard::UnitStore& store;
    optim::AdamW& optimizer;
};

/// The ranks of a world that share a file, as checkpoint.files says.
checkpoint::SavingRanks saving_ranks(config::CheckpointFiles files, const comm::Topology& topology);

/// Bytes of one checkpoint's data: weights of all parameters and both moments of those that are
/// trained, all fp32.
std::int64_t checkpoint_bytes(const shard::Layout& layout);

/// Kills this process at the stage that the deck asks for, if `rank` is the one it names.
checkpoint::StageHook stage_hook(const config::Fault& fault, std::int64_t rank);

/// How a save ended. Equal on all ranks but for what is said of one.
struct SaveReport {
    std::int64_t step = 0;
    std::filesystem::path folder;
    std::int64_t bytes = 0;              ///< of this rank's data
    double seconds = 0.0;                ///< from its beginning until it was durable
    double stall_s = 0.0;                ///< of them, those in which this rank could not train
    std::string error = {};              ///< why there is no checkpoint; empty when there is
    std::vector<std::string> left = {};  ///< what earlier deletions left, on rank 0
};

class Checkpoints : private optim::StateReader {
  public:
    /// `header` says what stays the same in all checkpoints of the run.
    Checkpoints(const SavedState& state, const checkpoint::SavingRanks& ranks,
                std::filesystem::path parent, checkpoint::Manifest header,
                const config::Checkpoint& keys, checkpoint::StageHook at_stage = {});
    ~Checkpoints() override;
    Checkpoints(const Checkpoints&) = delete;
    Checkpoints& operator=(const Checkpoints&) = delete;

    /// Saves, or begins to, then deletes what retention no longer wants. A save in the background
    /// is waited for first. One that begins copies the state while training goes on: the optimizer
    /// waits before it changes a unit that has not been copied. `last` says that the run ends with
    /// it: it is written before the call returns, and a failure is thrown whatever
    /// checkpoint.on_error says. Otherwise failures that the ranks agree on are reported where that
    /// key allows the run to go on. Returns the saves that have ended. Collective, between steps.
    std::vector<SaveReport> save(const checkpoint::Progress& progress, bool last);
    /// The save in the background, if it has ended. Between steps; collective.
    std::optional<SaveReport> poll();
    /// The same, and waits for it.
    std::optional<SaveReport> drain();

    /// Throws AgreedError when the disk has no room for a checkpoint. Collective.
    void require_space() const;

    /// Sets parameters, moments and the optimizer's step count, as far as the keys say. Returns
    /// sentences about what was left out. Collective.
    std::vector<std::string> restore(const checkpoint::Chosen& checkpoint);

    /// Of this rank's copy for saves in the background: as it will be, and as it is.
    std::int64_t planned_staging_bytes() const;
    std::int64_t staging_bytes() const { return saver_.staging_bytes(); }

  private:
    /// Waits until the save in the background has copied the unit, and counts that as stall.
    void finish_reading(std::int64_t unit) override;
    /// Parameters and moments at the given places in this rank's memory.
    std::vector<checkpoint::Piece> memory_of(const std::vector<OwnedPiece>& pieces);
    /// Of what this rank saves, units in order; notes where each ends.
    std::vector<checkpoint::Piece> exclusive_memory();
    /// Runs `work`, which returns the folder of a save that has ended or none, and makes `report_`
    /// tell about it.
    template <typename Work>
    std::optional<SaveReport> step_of_save(bool must_succeed, Work work);
    /// Begins to delete what is no longer wanted, on rank 0: large files take a while.
    void begin_deletion(const std::filesystem::path& newest);
    /// Waits for the deletion and notes what it could not do.
    void end_deletion();

    SavedState state_;
    StateView view_;
    std::filesystem::path parent_;
    checkpoint::Manifest header_;
    config::Checkpoint keys_;
    checkpoint::StageHook at_stage_;
    checkpoint::Saver saver_;
    std::vector<std::int64_t> elements_until_;  ///< the end of each unit, in the order of saving
    SaveReport report_;                         ///< of the save that is going on
    double begun_ = 0.0;
    std::future<std::string> deletion_;  ///< gives why it failed, or nothing
    std::vector<std::string> left_;      ///< for the next report
};

}  // namespace fullshard::train
