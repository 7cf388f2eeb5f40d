#include "train/run.h"

#include "base/build_info.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/folder_lock.h"
#include "comm/agree.h"
#include "comm/mpi_session.h"
#include "config/render.h"
#include "train/architecture.h"
#include "train/assemble.h"
#include "train/banner.h"
#include "train/checkpoints.h"
#include "train/parameter_groups.h"
#include "train/run_folder.h"
#include "train/run_summary.h"
#include "train/sharded_model.h"
#include "train/start.h"
#include "train/throughput.h"
#include "train/trainer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <memory>
#include <optional>
#include <vector>

namespace fullshard::train {

namespace {

std::optional<Evaluator> make_evaluator(const Start& start, ShardedModel& sharded) {
    if (start.datasets.validation.empty()) return std::nullopt;
    return std::optional<Evaluator>(std::in_place, sharded.engine(), start.datasets.validation,
                                    sharded.world());
}

/// What all checkpoints of the run say alike.
checkpoint::Manifest manifest_of(const Start& start, const ShardedModel& sharded) {
    checkpoint::Manifest manifest;
    manifest.seed = start.deck.run.seed;
    manifest.global_batch = start.batch.global_batch;
    manifest.numerics = {start.deck.reduce.order == config::ReduceOrder::kTree ? "tree" : "fast",
                         start.deck.kernels.threads, cpu_capability()};
    manifest.writer = {std::string(build_info().version), std::string(build_info().git_hash),
                       sharded.world().size(), std::string(sharded.plan().strategy->name)};
    manifest.effective_deck = config::effective_deck(start.deck);
    manifest.data_fingerprint = start.datasets.fingerprint;
    if (const auto architecture = architecture_of(start.deck)) {
        manifest.architecture = spec::to_hf_config(*architecture);
    }
    return manifest;
}

InjectedFaults faults_of(const config::Fault& fault, std::int64_t rank) {
    if (fault.rank != rank) return {};
    return {fault.throw_at_step, fault.hang_at_step, fault.stray_collective_at_step,
            fault.slow_step_s};
}

/// The same everywhere or an error of all ranks, though rank 0's clock decides. Collective.
std::optional<double> find_end_of_job(const RunEnvironment& environment, const config::Deck& deck,
                                      const comm::Group& job) {
    std::optional<double> end;
    comm::agree(job, [&] {
        end = end_of_job(environment.job_end, deck.stop.time_limit_s, environment.started);
    });
    return end;
}

/// Everything a training run consists of, in the order in which it comes to life.
class TrainingRun {
  public:
    TrainingRun(Start start, const comm::Group& job, const RunEnvironment& environment, Log& log);

    ExitCode run();

  private:
    ExitCode train();
    /// A save in the background is finished before the run ends with an error that is agreed on.
    void finish_saves();
    void note_error(const std::exception& error);
    void open_run_folder();
    void set_initial_state();
    void announce();

    Start start_;
    const config::Deck& deck_ = start_.deck;
    RunEnvironment environment_;
    Log& log_;
    const comm::Group& job_;
    StopController stop_;
    comm::Watchdog::Registration stop_deadlines_;
    ShardedModel sharded_;
    const comm::Group& world_ = sharded_.world();
    optim::AdamW optimizer_;
    optim::Schedule lr_schedule_;
    std::optional<checkpoint::FolderLock> lock_;  ///< on rank 0
    Checkpoints checkpoints_;
    std::optional<Evaluator> evaluator_;
    std::optional<Metrics> metrics_;
    std::unique_ptr<StepTrace> trace_;  ///< null unless steps are recorded
    Peak peak_;
};

TrainingRun::TrainingRun(Start start, const comm::Group& job, const RunEnvironment& environment,
                         Log& log)
    : start_(std::move(start)),
      environment_(environment),
      log_(log),
      job_(job),
      stop_(environment.stop, deck_.stop, find_end_of_job(environment, deck_, job)),
      stop_deadlines_(environment.watchdog, [this] { return stop_.watch(); }),
      sharded_(deck_, start_.batch, start_.model, start_.spec, start_.gemm.gemm, job),
      optimizer_(make_optimizer(
          adamw_of(deck_.optimizer), sharded_.layout(), sharded_.store(),
          [this](const spec::ParameterSpec& parameter) {
              return settings_of(parameter, deck_.optimizer);
          },
          sharded_.make_state())),
      lr_schedule_(schedule_of(deck_.optimizer, deck_.schedule, deck_.train.steps)),
      checkpoints_({world_, sharded_.replicas(), sharded_.layout(), sharded_.store(), optimizer_},
                   saving_ranks(deck_.checkpoint.files, sharded_.topology()),
                   deck_.run.dir / checkpoint::kCheckpointsFolder, manifest_of(start_, sharded_),
                   deck_.checkpoint, stage_hook(deck_.fault, job.rank())),
      evaluator_(make_evaluator(start_, sharded_)) {}

void TrainingRun::open_run_folder() {
    comm::agree(world_, [&] {
        if (world_.rank() != 0) return;
        make_run_folder(deck_.run.dir);
        lock_.emplace(deck_.run.dir);
        std::filesystem::remove_all(deck_.run.dir / kHangFolder);
        keep_tokenizer(deck_.run.dir, deck_.data.tokenizer);
        for (const auto& path :
             prepare_run_folder(deck_.run.dir, start_.folder_use, start_.progress(),
                                config::effective_deck(deck_))) {
            start_.notes.push_back("set aside, because its step is still to come: " +
                                   path.string());
        }
    });
    environment_.watchdog.set_report_folder(deck_.run.dir / kHangFolder);
    if (deck_.checkpoint.every > 0) checkpoints_.require_space();
    log_.append_to(deck_.run.dir / kLogFile);
    if (deck_.run.rank_logs) log_.keep_own(rank_log_path(deck_.run.dir, job_.rank()));
    metrics_.emplace(deck_.run.dir / kMetricsFile, world_.rank() == 0);
    if (deck_.trace.steps.empty()) return;
    trace_ = std::make_unique<StepTrace>(world_, deck_.trace.steps, deck_.run.dir / kTraceFile);
    sharded_.show_on(*trace_);
}

void TrainingRun::set_initial_state() {
    if (start_.checkpoint) {
        const auto left_out = checkpoints_.restore(*start_.checkpoint);
        for (const std::string& sentence : left_out) log_.warn("not loaded: {}", sentence);
        log_.info("resumed from {} after step {}", start_.checkpoint->folder.string(),
                  start_.progress().step);
    } else if (!deck_.model.init_from.empty()) {
        const auto left_out =
            load_weights(sharded_.store(), sharded_.layout(), world_, deck_.model.init_from,
                         architecture_of(deck_), deck_.checkpoint.load_strict);
        for (const std::string& sentence : left_out) log_.warn("not loaded: {}", sentence);
        log_.info("weights from {}", deck_.model.init_from.string());
    }
}

void TrainingRun::announce() {
    RunSetup setup{start_, sharded_, environment_.launch, peak_,
                   checkpoints_.planned_staging_bytes()};
    std::array<std::int64_t, 1> starts{};
    if (world_.rank() == 0) starts[0] = starts_in(deck_.run.dir / kLogFile);
    world_.all_reduce(starts, comm::Reduction::kMax);
    setup.start_number = starts[0] + 1;
    if (lock_ && lock_->stale())
        setup.warnings.push_back(
            fmt::format("the folder was left locked by {}, which is gone", *lock_->stale()));
    setup.warnings.insert(setup.warnings.end(), start_.notes.begin(), start_.notes.end());
    const std::vector<std::string> warnings = warnings_of(setup);
    setup.warnings.insert(setup.warnings.end(), warnings.begin(), warnings.end());
    train::announce(setup, log_);
    if (start_.finished) return;
    metrics_->write("run", run_record(setup));
    metrics_->write("event", start_event(setup));
}

ExitCode TrainingRun::run() {
    open_run_folder();
    if (environment_.stop.reclaim()) {
        log_.warn("a library had taken the handlers of stop signals; they are FullShard's again");
    }
    try {
        peak_ = find_peak(deck_, *start_.gemm.gemm, world_);
        announce();
        set_initial_state();
        return train();
    } catch (const std::exception& error) {
        note_error(error);
        if (dynamic_cast<const comm::AgreedError*>(&error) != nullptr) {
            finish_saves();
            throw;
        }
        // Unwinding would free memory that messages in flight still use: end the job from here.
        if (dynamic_cast<const TimeoutError*>(&error) != nullptr)
            environment_.watchdog.end_late_job(error.what());
        const auto* ours = dynamic_cast<const Error*>(&error);
        const ExitCode code = ours != nullptr ? ours->exit_code() : ExitCode::kRunError;
        comm::MpiSession::abort(error.what(), static_cast<int>(code));
    }
}

void TrainingRun::note_error(const std::exception& error) {
    log_.record_error(error.what());
    try {
        metrics_->write("event", {{"event", "error"}, {"message", error.what()}});
    } catch (const RunError& other) {
        log_.record_error(other.what());  // the run ends with the error that came first
    }
}

void TrainingRun::finish_saves() {
    try {
        const auto save = checkpoints_.drain();
        if (!save) return;
        log_.info("checkpoint {}: {}", save->folder.string(),
                  save->error.empty() ? "finished" : save->error);
    } catch (const comm::AgreedError& error) {
        log_.record_error(error.what());  // the run ends with the error that came first
    }
}

ExitCode TrainingRun::train() {
    if (start_.finished) {
        log_.info("nothing to do: step {} of {} is done{}", start_.steps_done, deck_.train.steps,
                  start_.checkpoint ? "; raise train.steps to go on" : "");
        return ExitCode::kDone;
    }
    data::PrefetchingLoader batches(*start_.datasets.training,
                                    {.rank = world_.rank(),
                                     .world_size = world_.size(),
                                     .accumulations = start_.batch.grad_accum_steps,
                                     .first_step = start_.progress().step,
                                     .end_step = deck_.train.steps},
                                    deck_.data.prefetch);
    Trainer trainer(
        {world_, sharded_.gradient_group(), sharded_.layout(), sharded_.store(), sharded_.engine(),
         optimizer_, lr_schedule_, *start_.datasets.training, batches,
         evaluator_ ? &*evaluator_ : nullptr, checkpoints_, stop_, sharded_.clock(), trace_.get(),
         log_, *metrics_},
        {.steps = deck_.train.steps,
         .micro_batches = start_.batch.grad_accum_steps,
         .log_every = deck_.train.log_every,
         .eval_every = deck_.train.eval_every,
         .checkpoint_every = deck_.checkpoint.every,
         .stop_at_step = deck_.train.stop_at_step,
         .quiet_s = deck_.comm.timeout_s,
         .save_s = deck_.checkpoint.timeout_s,
         .durable_step = start_.folder_use == FolderUse::kContinue ? start_.progress().step : -1,
         .faults = faults_of(deck_.fault, job_.rank()),
         .clipping = {deck_.optimizer.clip_norm, deck_.optimizer.clip_value},
         .on_nonfinite = deck_.train.on_nonfinite,
         .loss_scaling = loss_scaling_of(deck_.precision)},
        start_.progress());
    const shard::Traffic before = sharded_.store().traffic();
    const Outcome outcome = trainer.run();
    const shard::Traffic counted = sharded_.store().traffic() - before;
    summarise({start_, sharded_, optimizer_, checkpoints_, trainer, outcome, counted, peak_,
               trace_.get(), environment_.launch},
              log_, *metrics_);
    return outcome.stopped_early ? ExitCode::kStoppedEarly : ExitCode::kDone;
}

}  // namespace

ExitCode run_training(const config::Deck& deck, const comm::Group& job,
                      const RunEnvironment& environment, Log& log) {
    return TrainingRun(check_training(deck, environment.custom_model, job), job, environment, log)
        .run();
}

ExitCode run_evaluation(const config::Deck& deck, const comm::Group& job,
                        const RunEnvironment& environment, Log& log) {
    const Start start = check_evaluation(deck, environment.custom_model, job);
    ShardedModel sharded(start.deck, start.batch, start.model, start.spec, start.gemm.gemm, job);
    load_weights(sharded.store(), sharded.layout(), sharded.world(), start.deck.model.init_from,
                 architecture_of(start.deck));
    for (const std::string& line : sharded.describe()) log.info("{}", line);
    log.info("matrix products: {}", start.gemm.description);
    StopController stop(environment.stop, deck.stop, find_end_of_job(environment, deck, job));
    const comm::Watchdog::Registration deadlines(environment.watchdog,
                                                 [&stop] { return stop.watch(); });
    const auto evaluation = make_evaluator(start, sharded)->evaluate(stop);
    if (!evaluation) {
        log.info("stopped by {}: there is no result; start it again", stop.reason());
        return ExitCode::kStoppedEarly;
    }
    const auto tell = [&](const std::string& what, const HeldOutLoss& result) {
        log.info("{}: validation loss {:.6f} over {} tokens, perplexity {:.4f}", what, result.loss,
                 result.tokens, result.perplexity());
    };
    if (evaluation->by_source.size() > 1) {
        for (const SourceLoss& part : evaluation->by_source) tell("  " + part.source, part);
    }
    tell(start.deck.model.init_from.string(), *evaluation);
    return ExitCode::kDone;
}

std::string units_of_run(const config::Deck& deck, const comm::Group& job,
                         const ModelFactory& custom_model) {
    const auto [spec, plan] = plan_model(deck, custom_model, job);
    std::string text;
    for (const std::string& line : plan.describe()) text += line + '\n';
    return text + '\n' + plan.units_text(spec);
}

}  // namespace fullshard::train
