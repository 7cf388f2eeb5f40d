// One run of the program, from a checked deck to its summary.
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "config/deck.h"
#include "train/start.h"
#include "train/stop.h"

#include <string>

namespace fullshard::train {

/// What main knows about the process and the files do not.
struct RunEnvironment {
    std::string host;
    std::string mpi_library;
    const StopRequest& stop;
    ModelFactory custom_model = {};  ///< of a program that was built with one of its own
};

/// Trains as the deck says and leaves effective deck, run.log, metrics.jsonl and checkpoints in
/// run.dir. Returns kDone, or kStoppedEarly when asked to stop (a checkpoint is then durable).
/// Mistakes that only show with the number of ranks, the data or a checkpoint are agreed on by all
/// ranks before anything is written. Collective over `job`.
ExitCode run_training(const config::Deck& deck, const comm::Group& job,
                      const RunEnvironment& environment, Log& log);

/// Prints the loss of the weights in model.init_from on the held-out data; writes nothing.
/// Collective.
void run_evaluation(const config::Deck& deck, const comm::Group& job,
                    const ModelFactory& custom_model, Log& log);

/// What a run of the deck would hold on this rank: the table of units and the memory plan, as text
/// that ends with a line break. Allocates none of it. Collective.
std::string units_of_run(const config::Deck& deck, const comm::Group& job,
                         const ModelFactory& custom_model);

}  // namespace fullshard::train
