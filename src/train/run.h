// One run of the program, from a checked deck to its summary.
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "comm/watchdog.h"
#include "config/deck.h"
#include "train/launch_info.h"
#include "train/start.h"
#include "train/stop.h"

#include <string>

namespace fullshard::train {

/// What main knows about the process and the files do not.
struct RunEnvironment {
    LaunchInfo launch;
    double started = 0.0;  ///< when the program started, in seconds since 1970
    std::string job_end;   ///< when Slurm will end the job, as it says so; empty: it does not
    StopRequest& stop;
    comm::Watchdog& watchdog;
    ModelFactory custom_model = {};  ///< of a program that was built with one of its own
};

/// Trains as the deck says and leaves effective deck, run.log, metrics.jsonl and checkpoints in
/// run.dir. Returns kDone, or kStoppedEarly when asked to stop (a checkpoint is then durable, and
/// the run goes on from there when it is started again).
/// Mistakes that only show with the number of ranks, the data or a checkpoint are agreed on by all
/// ranks before anything is written. Collective over `job`.
ExitCode run_training(const config::Deck& deck, const comm::Group& job,
                      const RunEnvironment& environment, Log& log);

/// Prints the loss of the weights in model.init_from on the held-out data; writes nothing. Returns
/// kDone, or kStoppedEarly when asked to stop before the loss was known. Collective.
ExitCode run_evaluation(const config::Deck& deck, const comm::Group& job,
                        const RunEnvironment& environment, Log& log);

/// What a run of the deck would hold on this rank: the table of units and the memory plan, as text
/// that ends with a line break. Allocates none of it. Collective.
std::string units_of_run(const config::Deck& deck, const comm::Group& job,
                         const ModelFactory& custom_model);

}  // namespace fullshard::train
