// A run's checkpoints: which memory goes where in the file.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/parallel/load.h"
#include "checkpoint/parallel/piece.h"
#include "comm/group.h"
#include "optim/adamw.h"
#include "shard/layout.h"
#include "shard/unit_store.h"
#include "train/owned_pieces.h"

#include <filesystem>
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

class Checkpoints {
  public:
    /// `header` says what stays the same in all checkpoints of the run; `keep_last` 0 keeps all.
    Checkpoints(const SavedState& state, std::filesystem::path parent, checkpoint::Manifest header,
                std::int64_t keep_last);

    struct Saved {
        std::filesystem::path folder;
        std::int64_t bytes = 0;  ///< of this rank's data
        double seconds = 0.0;
    };
    /// Saves, then deletes what retention no longer wants. Collective, between steps.
    Saved save(const checkpoint::Progress& progress);

    /// Sets parameters, moments and the optimizer's step count. Collective.
    void restore(const checkpoint::Chosen& checkpoint);

  private:
    /// Parameters and moments at the given places in this rank's memory.
    std::vector<checkpoint::Piece> memory_of(const std::vector<OwnedPiece>& pieces) const;

    SavedState state_;
    std::filesystem::path parent_;
    checkpoint::Manifest header_;
    std::int64_t keep_last_;
};

}  // namespace fullshard::train
