#include "train/trainer.h"

#include "base/error.h"
#include "comm/agree.h"
#include "train/grad_norm.h"
#include "train/memory_usage.h"
#include "train/text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>

namespace fullshard::train {

namespace {

checkpoint::LossScalerState saved_form(const optim::LossScalerState& state) {
    return {state.scale, state.good_steps, state.hysteresis_left};
}

optim::LossScalerState restored_form(const checkpoint::LossScalerState& state) {
    return {state.scale, state.good_steps, state.hysteresis_left};
}

/// Losses of the sources, where there are several.
std::string by_source_text(const Evaluation& evaluation) {
    std::string text;
    if (evaluation.by_source.size() < 2) return text;
    for (const SourceLoss& part : evaluation.by_source) {
        text += fmt::format("; {} {:.4f} over {}", part.source, part.loss, part.tokens);
    }
    return text;
}

/// `every` is 0 for never.
bool is_due(std::int64_t step, std::int64_t every) {
    return every > 0 && step % every == 0;
}

}  // namespace

Trainer::Trainer(const TrainingState& state, const TrainerOptions& options,
                 const checkpoint::Progress& progress)
    : state_(state),
      options_(options),
      progress_(progress),
      judge_(options.on_nonfinite, options.loss_scaling),
      tokens_by_source_(state.loader.valid_targets_before(progress.step)),
      step_by_source_(tokens_by_source_.size()),
      mine_(static_cast<std::size_t>(options.micro_batches) + 1),
      of_all_(mine_.size() * static_cast<std::size_t>(state.world.size())),
      votes_(static_cast<std::size_t>(state.world.size())),
      durable_step_(options.durable_step) {
    if (progress.loss_scaler) judge_.restore(restored_form(*progress.loss_scaler));
}

void Trainer::count_version() {
    if (new_parameters_) ++work_.versions;
    new_parameters_ = false;
}

const data::TokenBatch& Trainer::next_batch(std::int64_t step, std::int64_t accumulation) {
    const auto phase = state_.clock.enter(Phase::kData);
    return state_.batches.load(step, accumulation);
}

void Trainer::run_micro_batches(const StepResult& result) {
    count_version();
    ++work_.steps;
    const double loss_factor = 1.0 / static_cast<double>(result.tokens);
    for (std::int64_t a = 0; a < options_.micro_batches; ++a) {
        const std::int64_t g = data::micro_batch_index(a, state_.world.rank(), state_.world.size());
        const data::TokenBatch& batch = next_batch(result.step - 1, a);
        state_.engine.train(batch, {result.step, g}, loss_factor, result.loss_scale);
    }
    const auto phase = state_.clock.enter(Phase::kReduce);
    state_.store.finish_reductions();
    std::ranges::copy(state_.engine.take_losses(), mine_.begin());
}

void Trainer::exchange(StepResult& result) {
    const auto phase = state_.clock.enter(Phase::kReduce);
    mine_.back() = state_.stop.vote(state_.world.rank());
    if (result.step == options_.faults.stray_collective_at_step) state_.world.barrier();
    state_.world.all_gather(mine_, of_all_);
    // In the order of g, so that the reported loss too has equal bits at any world size.
    for (std::size_t a = 0; a + 1 < mine_.size(); ++a) {
        for (std::size_t i = a; i < of_all_.size(); i += mine_.size()) result.loss += of_all_[i];
    }
    for (std::size_t rank = 0; rank < votes_.size(); ++rank) {
        votes_[rank] = of_all_[(rank + 1) * mine_.size() - 1];
    }
    state_.stop.judge(votes_);
    if (result.step == options_.stop_at_step && result.step < options_.steps)
        state_.stop.stop_at_step();
}

void Trainer::skip(StepResult& result, const std::string& reason) {
    result.skipped = true;
    ++progress_.skipped_steps;
    if (state_.world.rank() == 0) state_.log.warn("step {} is skipped: {}", result.step, reason);
    state_.metrics.write("event", {{"event", "skipped_step"},
                                   {"step", result.step},
                                   {"reason", reason},
                                   {"loss", result.loss},
                                   {"grad_norm", result.grad_norm},
                                   {"loss_scale", result.loss_scale},
                                   {"skipped_steps", progress_.skipped_steps}});
}

void Trainer::advance(const StepResult& result) {
    progress_.step = result.step;
    progress_.optimizer_step = state_.optimizer.step_count();
    progress_.tokens += result.tokens;
    std::ranges::transform(tokens_by_source_, step_by_source_, tokens_by_source_.begin(),
                           std::plus());
    progress_.samples = state_.loader.samples_before(result.step);
    progress_.loss_scaler.reset();
    if (const auto scaler = judge_.scaler_state()) progress_.loss_scaler = saved_form(*scaler);
}

void Trainer::let_faults_happen(std::int64_t step) const {
    const InjectedFaults& faults = options_.faults;
    if (step == faults.throw_at_step) {
        throw RunError(fmt::format("fault.throw_at_step = {}", step));
    }
    while (step == faults.hang_at_step) std::this_thread::sleep_for(std::chrono::seconds(1));
    std::this_thread::sleep_for(std::chrono::duration<double>(faults.slow_step_s));
}

StepResult Trainer::step(std::int64_t step) {
    state_.world.ledger().enter("training step", step);
    let_faults_happen(step);
    StepResult result;
    result.step = step;
    std::ranges::fill(step_by_source_, 0);
    state_.loader.add_valid_targets(step - 1, step_by_source_);
    result.tokens = std::reduce(step_by_source_.begin(), step_by_source_.end());
    result.loss_scale = judge_.loss_scale();
    result.lr = optim::learning_rate(state_.schedule, state_.optimizer.step_count());
    std::ranges::fill(mine_, 0.0);
    if (result.tokens > 0) run_micro_batches(result);
    exchange(result);

    const auto phase = state_.clock.enter(Phase::kOptimizer);
    if (result.tokens > 0) {
        result.grad_norm = global_grad_norm(state_.optimizer.device(), state_.store, state_.layout,
                                            state_.gradient_group) /
                           result.loss_scale;
    } else {
        // No rank has computed anything, and a mean over no tokens is no number.
        result.loss = result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    }
    const StepDecision decision = judge_.decide({result.tokens, result.loss, result.grad_norm});
    switch (decision.action) {
        case StepDecision::Action::kUpdate:
            update_parameters(state_.store, state_.layout, state_.optimizer, result.lr,
                              treatment_of(result.grad_norm, result.loss_scale, options_.clipping));
            new_parameters_ = true;
            break;
        case StepDecision::Action::kSkip:
            skip(result, decision.reason);
            break;
        case StepDecision::Action::kAbort:
            throw comm::AgreedError(fmt::format("step {}: {}", step, decision.reason),
                                    ExitCode::kDiverged);
    }
    advance(result);
    return result;
}

std::optional<Evaluation> Trainer::evaluate() {
    const auto phase = state_.clock.enter(Phase::kEvaluation);
    state_.world.ledger().enter("evaluation after step", progress_.step);
    const double begin = now_seconds();
    count_version();
    const std::optional<Evaluation> evaluation = state_.evaluator->evaluate(state_.stop);
    work_.evaluations += state_.evaluator->rounds_run();
    if (!evaluation) {
        state_.log.info("evaluation after step {} is left to the next start", progress_.step);
        return std::nullopt;
    }
    const double seconds = now_seconds() - begin;
    state_.log.info("evaluation after step {}: validation loss {:.4f} over {} tokens{} ({:.1f} s)",
                    progress_.step, evaluation->loss, evaluation->tokens,
                    by_source_text(*evaluation), seconds);
    nlohmann::ordered_json record{{"step", progress_.step},
                                  {"loss", evaluation->loss},
                                  {"tokens", evaluation->tokens},
                                  {"seconds", seconds}};
    if (evaluation->by_source.size() > 1) {
        for (const SourceLoss& part : evaluation->by_source) {
            record["by_source"][part.source] = {{"loss", part.loss}, {"tokens", part.tokens}};
        }
    }
    state_.metrics.write("eval", record);
    return evaluation;
}

void Trainer::evaluate_into(Outcome& outcome) {
    progress_.evaluation_pending = true;
    if (state_.stop.stopping()) return;
    if (const auto evaluation = evaluate()) {
        outcome.evaluations.push_back(*evaluation);
        progress_.evaluation_pending = false;
    }
}

void Trainer::report(const StepResult& result, const Interval& interval) {
    const auto phase = state_.clock.enter(Phase::kLog);
    std::array<std::int64_t, 2> most{peak_resident_bytes(), interval.page_faults};
    state_.world.all_reduce(most, comm::Reduction::kMax);
    const double step_s = interval.seconds / static_cast<double>(interval.steps);
    const double rate = static_cast<double>(interval.tokens) / interval.seconds;
    const double left_s = step_s * static_cast<double>(options_.steps - result.step);
    const bool scales = options_.loss_scaling.has_value();
    state_.log.info(
        "step {:>{}}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}{}  {:>7.0f} tokens/s  {} left  {} a "
        "rank",
        result.step, std::to_string(options_.steps).size(), options_.steps, result.loss,
        result.grad_norm, result.lr, scales ? fmt::format("  scale {}", result.loss_scale) : "",
        rate, duration_text(left_s), bytes_text(most[0]));
    nlohmann::ordered_json record{{"step", result.step},
                                  {"loss", result.loss},
                                  {"grad_norm", result.grad_norm},
                                  {"lr", result.lr},
                                  {"tokens", progress_.tokens},
                                  {"tokens_per_s", rate},
                                  {"step_s", step_s},
                                  {"mem_peak_bytes", most[0]},
                                  {"page_faults", most[1] / interval.steps}};
    if (scales) record["loss_scale"] = result.loss_scale;
    const auto sources = state_.loader.sources();
    for (std::size_t i = 0; sources.size() > 1 && i < sources.size(); ++i) {
        record["tokens_by_source"][sources[i].name] = tokens_by_source_[i];
    }
    if (result.skipped) record["skipped"] = true;
    state_.metrics.write("step", record);
}

void Trainer::report(const SaveReport& save) {
    saves_.seconds += save.seconds;
    saves_.stall_s += save.stall_s;
    saves_.longest_stall_s = std::max(saves_.longest_stall_s, save.stall_s);
    if (!save.error.empty()) {
        ++saves_.failed;
        state_.log.warn("THE CHECKPOINT OF STEP {} WAS NOT SAVED, training goes on: {}", save.step,
                        save.error);
        state_.metrics.write("event", {{"event", "failed_save"},
                                       {"step", save.step},
                                       {"message", save.error},
                                       {"stall_s", save.stall_s}});
        return;
    }
    ++saves_.saved;
    durable_step_ = save.step;
    state_.stop.note_save(save.seconds);
    state_.log.info("checkpoint {} ({} a rank, {:.2f} s, stall {:.3f} s)", save.folder.string(),
                    bytes_text(save.bytes), save.seconds, save.stall_s);
    for (const std::string& problem : save.left) {
        state_.log.warn("an old checkpoint could not be deleted: {}", problem);
    }
    state_.metrics.write("checkpoint", {{"step", save.step},
                                        {"folder", save.folder.string()},
                                        {"seconds", save.seconds},
                                        {"stall_s", save.stall_s},
                                        {"bytes_of_rank_0", save.bytes}});
}

void Trainer::save_checkpoint(bool last) {
    const auto phase = state_.clock.enter(Phase::kCheckpoint);
    comm::Ledger& ledger = state_.world.ledger();
    const comm::Ledger::Patience patience(ledger, options_.save_s);
    const StopController::Saving saving(state_.stop);
    ledger.enter("saving after step", progress_.step);
    for (const SaveReport& save : state_.checkpoints.save(progress_, last)) report(save);
}

std::optional<double> Trainer::steady_page_faults() const {
    if (steps_run_ <= kWarmUpSteps) return std::nullopt;
    return static_cast<double>(steady_page_faults_) /
           static_cast<double>(steps_run_ - kWarmUpSteps);
}

void Trainer::run_step(std::int64_t number, Interval& interval) {
    const double begin = now_seconds();
    const std::int64_t faults_before = page_faults();
    const StepResult result = step(number);
    const double seconds = now_seconds() - begin;
    const std::int64_t faults = page_faults() - faults_before;
    if (steps_run_ == 0) state_.world.ledger().allow(options_.quiet_s);
    ++steps_run_;
    if (steps_run_ > kWarmUpSteps) steady_page_faults_ += faults;
    tokens_run_ += result.tokens;
    seconds_in_steps_ += seconds;
    state_.stop.note_step(seconds);
    interval = {interval.seconds + seconds, interval.tokens + result.tokens, interval.steps + 1,
                interval.page_faults + faults};
    if (number == options_.steps || steps_run_ == 1 || is_due(number, options_.log_every) ||
        state_.stop.stopping()) {
        report(result, interval);
        interval = {};
    }
}

void Trainer::stop_early(Outcome& outcome) {
    outcome.stopped_early = true;
    outcome.stop_reason = state_.stop.reason();
    state_.log.info("stopping after step {}: {}", progress_.step, outcome.stop_reason);
    if (const auto save = state_.checkpoints.drain()) report(*save);
    if (durable_step_ != progress_.step) save_checkpoint(/*last=*/true);
    state_.stop.stopped();
    state_.metrics.write(
        "event", {{"event", "stop"}, {"step", progress_.step}, {"reason", outcome.stop_reason}});
}

Outcome Trainer::run() {
    Outcome outcome;
    const bool evaluates = state_.evaluator != nullptr;
    state_.stop.judge_now(state_.world);  // a signal during the start
    if (evaluates && (progress_.step == 0 || progress_.evaluation_pending)) evaluate_into(outcome);
    Interval interval;
    while (progress_.step < options_.steps && !state_.stop.stopping()) {
        const std::int64_t number = progress_.step + 1;
        if (state_.trace != nullptr) state_.trace->begin_step(number);
        run_step(number, interval);
        const bool last = number == options_.steps;
        if (evaluates && (last || is_due(number, options_.eval_every))) evaluate_into(outcome);
        const bool done = last && !progress_.evaluation_pending;
        if (state_.stop.stopping() && !done) break;
        if ((last && options_.checkpoint_every > 0) || is_due(number, options_.checkpoint_every)) {
            save_checkpoint(last);
            if (!last) state_.stop.judge_now(state_.world);
        } else {
            const auto phase = state_.clock.enter(Phase::kCheckpoint);
            if (const auto save = state_.checkpoints.poll()) report(*save);
        }
    }
    if (progress_.step < options_.steps || progress_.evaluation_pending) stop_early(outcome);
    if (state_.trace != nullptr) state_.trace->finish();
    return outcome;
}

}  // namespace fullshard::train
