// Everything that is checked before a run touches anything.
#pragma once

#include "checkpoint/parallel/load.h"
#include "comm/group.h"
#include "config/batch.h"
#include "config/deck.h"
#include "model/model.h"
#include "spec/model_spec.h"
#include "train/assemble.h"
#include "train/datasets.h"
#include "train/gemm_choice.h"
#include "train/run_folder.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

/// A checked deck, the model and the data it names, and what the run goes on from.
struct Start {
    /// With its batch sizes, unless [elasticity] derives them, and its library of matrix products.
    config::Deck deck;
    config::Batch batch;
    std::shared_ptr<const model::Model> model;
    spec::ModelSpec spec;  ///< the model's, with the deck's parameter groups applied
    Datasets datasets;
    GemmChoice gemm;
    std::optional<checkpoint::Chosen> checkpoint;
    FolderUse folder_use = FolderUse::kNew;
    std::int64_t steps_done = 0;     ///< by the run that goes on, or is finished without checkpoint
    bool finished = false;           ///< nothing was left to do before it started
    std::vector<std::string> notes;  ///< what the log should say about checkpoint, folder and data

    checkpoint::Progress progress() const {
        return checkpoint ? checkpoint->manifest.progress : checkpoint::Progress{};
    }
};

/// Throws AgreedError, the same on every rank, for contradictions with the number of ranks, a model
/// that does not exist, groups of none of its parameters, data that are missing, a run folder that
/// is taken, and a checkpoint that is damaged or does not fit. Changes nothing. Collective.
Start check_training(const config::Deck& deck, const ModelFactory& custom, const comm::Group& job);
/// The same without run folder and checkpoint. Collective.
Start check_evaluation(const config::Deck& deck, const ModelFactory& custom,
                       const comm::Group& job);

/// The numbers of ranks on which a run of the deck can start or go on, as text that ends with a
/// line break. Throws AgreedError as check_training() does for what is in run.dir. Collective.
std::string world_sizes_of_run(const config::Deck& deck, const comm::Group& job);

}  // namespace fullshard::train
