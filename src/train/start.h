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

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::train {

/// A checked deck with its batch sizes resolved for the number of ranks, the model and the data it
/// names, and the checkpoint it goes on from.
struct Start {
    config::Deck deck;
    config::Batch batch;
    std::shared_ptr<const model::Model> model;
    spec::ModelSpec spec;  ///< the model's, with the deck's parameter groups applied
    Datasets datasets;
    std::optional<checkpoint::Chosen> checkpoint;
    std::vector<std::string> notes;  ///< what the log should say about checkpoint and data

    /// Whether run.dir holds the run that goes on.
    bool continues_in_place() const;
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

}  // namespace fullshard::train
