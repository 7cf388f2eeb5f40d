// The last words of a run.
#pragma once

#include "base/log.h"
#include "optim/adamw.h"
#include "shard/unit_store.h"
#include "train/checkpoints.h"
#include "train/launch_info.h"
#include "train/metrics.h"
#include "train/sharded_model.h"
#include "train/start.h"
#include "train/throughput.h"
#include "train/trace.h"
#include "train/trainer.h"

namespace fullshard::train {

/// A run whose trainer has ended.
struct FinishedRun {
    const Start& start;
    ShardedModel& sharded;
    const optim::AdamW& optimizer;
    const Checkpoints& checkpoints;
    const Trainer& trainer;
    const Outcome& outcome;
    const shard::Traffic& counted;  ///< by the trainer's work
    const Peak& peak;
    const StepTrace* trace;  ///< null when no step was recorded
    const LaunchInfo& launch;
};

/// Exit reason, speed, MFU, phases, predicted beside measured memory and traffic, and what to do
/// next, to the log and as the record "summary". Collective.
void summarise(const FinishedRun& run, Log& log, Metrics& metrics);

}  // namespace fullshard::train
