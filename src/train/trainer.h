// The training loop.
#pragma once

#include "base/log.h"
#include "checkpoint/format/manifest.h"
#include "comm/group.h"
#include "data/loader.h"
#include "data/prefetching_loader.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "shard/layout.h"
#include "shard/plan.h"
#include "shard/unit_store.h"
#include "train/checkpoints.h"
#include "train/engine.h"
#include "train/evaluator.h"
#include "train/metrics.h"
#include "train/phases.h"
#include "train/step_decision.h"
#include "train/stop_controller.h"
#include "train/trace.h"
#include "train/update.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::train {

/// What tests let happen on this rank. Steps count from 1; 0: never.
struct InjectedFaults {
    std::int64_t throw_at_step = 0;
    std::int64_t hang_at_step = 0;
    std::int64_t stray_collective_at_step = 0;
    double slow_step_s = 0.0;
};

struct TrainerOptions {
    std::int64_t steps = 0;
    std::int64_t micro_batches = 1;  ///< per rank and step
    std::int64_t log_every = 1;
    std::int64_t eval_every = 0;        ///< 0: before the first step and after the last one only
    std::int64_t checkpoint_every = 0;  ///< 0: only when the run is asked to stop
    std::int64_t stop_at_step = 0;      ///< as if asked to stop in this step; 0: never
    /// How long the ranks may be quiet once the first step is done, and in a save; seconds.
    double quiet_s = comm::Ledger::kUnlimited;
    double save_s = comm::Ledger::kUnlimited;
    /// The step whose checkpoint is in the run's folder already; -1: none.
    std::int64_t durable_step = -1;
    InjectedFaults faults = {};
    Clipping clipping = {};
    config::OnNonfinite on_nonfinite = config::OnNonfinite::kAbort;
    std::optional<optim::LossScalerOptions> loss_scaling = {};  ///< none: losses are not scaled
};

/// What a step tells about itself; equal on all ranks.
struct StepResult {
    std::int64_t step = 0;    ///< counts from 1
    double loss = 0.0;        ///< mean over the step's valid tokens; NaN when there are none
    double grad_norm = 0.0;   ///< of the whole step's gradient, unscaled and before clipping
    double lr = 0.0;          ///< of the update, or what it would have had
    double loss_scale = 1.0;  ///< that the step's gradients were computed with
    std::int64_t tokens = 0;  ///< valid targets of the step
    bool skipped = false;     ///< nothing was updated
};

/// What a trainer works on; everything outlives it.
struct TrainingState {
    const comm::Group& world;
    const comm::Group& gradient_group;  ///< ranks over which gradients are sharded
    const shard::Layout& layout;
    shard::UnitStore& store;
    Engine& engine;
    optim::AdamW& optimizer;
    const optim::Schedule& schedule;
    const data::TrainingLoader& loader;
    data::PrefetchingLoader& batches;  ///< this rank's of `loader`, from the next step on
    Evaluator* evaluator;              ///< null when nothing is held out
    Checkpoints& checkpoints;
    StopController& stop;
    PhaseClock& clock;
    StepTrace* trace;  ///< null when no step is recorded
    Log& log;
    Metrics& metrics;
};

/// What saving has cost.
struct SaveTotals {
    std::int64_t saved = 0;
    std::int64_t failed = 0;
    double seconds = 0.0;  ///< from begin to durable
    double stall_s = 0.0;  ///< of them, those in which training stood still
    double longest_stall_s = 0.0;
};

/// How a run of the trainer ended.
struct Outcome {
    bool stopped_early = false;           ///< asked to stop; a checkpoint is durable
    std::string stop_reason;              ///< "USR1 on rank 2"; empty when the run is done
    std::vector<Evaluation> evaluations;  ///< in order
};

class Trainer {
  public:
    /// `progress` is where the run stands: zeros, or a checkpoint's.
    Trainer(const TrainingState& state, const TrainerOptions& options,
            const checkpoint::Progress& progress);

    /// The remaining steps, with evaluations, progress lines, records and checkpoints. Collective.
    Outcome run();

    const checkpoint::Progress& progress() const { return progress_; }
    /// Of this process: what the store had to do, steps run, valid targets in them, and the seconds
    /// they took.
    const shard::Work& work() const { return work_; }
    std::int64_t steps_run() const { return steps_run_; }
    /// The first steps find the memory that all later ones use.
    static constexpr std::int64_t kWarmUpSteps = 5;
    /// Page faults of this process in a later step, on average; none without such a step.
    std::optional<double> steady_page_faults() const;
    std::int64_t tokens_run() const { return tokens_run_; }
    /// Valid targets of each of the loader's sources since the training's first step, also where
    /// other processes did earlier steps.
    std::span<const std::int64_t> tokens_by_source() const { return tokens_by_source_; }
    double seconds_in_steps() const { return seconds_in_steps_; }
    const SaveTotals& saves() const { return saves_; }

  private:
    /// What progress lines average over.
    struct Interval {
        double seconds = 0.0;
        std::int64_t tokens = 0;
        std::int64_t steps = 0;
        std::int64_t page_faults = 0;
    };

    /// One step over all micro-batches; `step` counts from 1. Throws AgreedError with the exit code
    /// for divergence on every rank when StepJudge decides to abort.
    StepResult step(std::int64_t step);
    const data::TokenBatch& next_batch(std::int64_t step, std::int64_t accumulation);
    /// Forward, backward and reduction; leaves this rank's losses in `mine_`.
    void run_micro_batches(const StepResult& result);
    void let_faults_happen(std::int64_t step) const;
    /// Sums losses over the ranks, and lets them agree on whether to stop.
    void exchange(StepResult& result);
    void skip(StepResult& result, const std::string& reason);
    void advance(const StepResult& result);
    /// The step with its report; what it took goes into `interval`.
    void run_step(std::int64_t number, Interval& interval);
    /// Into `outcome`; left out, and noted as pending, once the run is to stop.
    void evaluate_into(Outcome& outcome);
    std::optional<Evaluation> evaluate();
    /// The coming pass uses the parameters as they are.
    void count_version();
    void report(const StepResult& result, const Interval& interval);
    /// `last`: the run ends with it.
    void save_checkpoint(bool last);
    /// Writes what is missing for the run to go on from here.
    void stop_early(Outcome& outcome);
    void report(const SaveReport& report);

    TrainingState state_;
    TrainerOptions options_;
    checkpoint::Progress progress_;
    StepJudge judge_;
    std::vector<std::int64_t> tokens_by_source_;
    std::vector<std::int64_t> step_by_source_;  ///< valid targets of the step at hand
    std::vector<double> mine_;    ///< loss of each micro-batch, then the vote on stopping
    std::vector<double> of_all_;  ///< the same of each rank
    std::vector<double> votes_;   ///< of each rank
    std::int64_t durable_step_;   ///< of the newest finished checkpoint; -1: none
    shard::Work work_{.steps = 0, .evaluations = 0, .versions = 0};
    bool new_parameters_ = true;  ///< no pass has used them yet
    std::int64_t steps_run_ = 0;
    std::int64_t tokens_run_ = 0;
    double seconds_in_steps_ = 0.0;
    std::int64_t steady_page_faults_ = 0;  ///< since the first kWarmUpSteps steps
    SaveTotals saves_;
};

}  // namespace fullshard::train
