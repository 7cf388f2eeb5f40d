#include "train/trainer.h"

#include "base/error.h"
#include "comm/agree.h"
#include "train/grad_norm.h"
#include "train/memory_usage.h"
#include "train/text.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cmath>

namespace fullshard::train {

Trainer::Trainer(const TrainingState& state, const TrainerOptions& options,
                 const checkpoint::Progress& progress)
    : state_(state),
      options_(options),
      progress_(progress),
      mine_(static_cast<std::size_t>(options.micro_batches) + 1),
      of_all_(mine_.size() * static_cast<std::size_t>(state.world.size())) {}

void Trainer::run_micro_batches(std::int64_t step, StepResult& result) {
    const double loss_factor = 1.0 / static_cast<double>(result.tokens);
    for (std::int64_t a = 0; a < options_.micro_batches; ++a) {
        const std::int64_t g = data::micro_batch_index(a, state_.world.rank(), state_.world.size());
        {
            const auto phase = state_.clock.enter(Phase::kData);
            state_.loader.load(step - 1, g, batch_);
        }
        mine_[static_cast<std::size_t>(a)] = state_.engine.train(batch_, {step, g}, loss_factor);
    }
    const auto phase = state_.clock.enter(Phase::kReduce);
    state_.store.finish_reductions();
    mine_.back() = state_.stop.received() ? 1.0 : 0.0;
    state_.world.all_gather(mine_, of_all_);
    // In the order of g, so that the reported loss too has equal bits at any world size.
    for (std::size_t a = 0; a + 1 < mine_.size(); ++a) {
        for (std::size_t i = a; i < of_all_.size(); i += mine_.size()) result.loss += of_all_[i];
    }
    for (std::size_t i = mine_.size() - 1; i < of_all_.size(); i += mine_.size()) {
        result.asked_to_stop |= of_all_[i] != 0.0;
    }
}

void Trainer::update(double lr) {
    state_.optimizer.begin_step();
    for (std::size_t i = 0; i < state_.layout.units.size(); ++i) {
        if (!state_.layout.units[i].trainable()) continue;
        const auto unit = static_cast<std::int64_t>(i);
        state_.store.begin_update(unit);
        state_.optimizer.step(unit, state_.store.gradient(unit), lr);
        state_.store.publish(unit);
    }
}

StepResult Trainer::step(std::int64_t step) {
    if (step == options_.throw_at_step) {
        throw RunError(fmt::format("fault.throw_at_step = {}", step));
    }
    StepResult result;
    result.step = step;
    result.tokens = state_.loader.valid_targets(step - 1);
    ensure(result.tokens > 0, "every window of training data has a target");
    run_micro_batches(step, result);
    const auto phase = state_.clock.enter(Phase::kOptimizer);
    result.grad_norm = global_grad_norm(state_.store, state_.layout, state_.gradient_group);
    if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
        // Loss and norm are equal on all ranks: so is this decision, and nobody waits for anybody.
        throw comm::AgreedError(
            fmt::format("step {}: loss {} and gradient norm {} are not finite; lower optimizer.lr "
                        "or raise schedule.warmup_steps",
                        step, result.loss, result.grad_norm),
            ExitCode::kDiverged);
    }
    result.lr = optim::learning_rate(state_.schedule, step - 1);
    update(result.lr);
    progress_.step = step;
    progress_.optimizer_step = state_.optimizer.step_count();
    progress_.tokens += result.tokens;
    progress_.samples = state_.loader.samples_before(step);
    result.asked_to_stop |= step == options_.stop_at_step;
    return result;
}

Evaluation Trainer::evaluate() {
    const auto phase = state_.clock.enter(Phase::kEvaluation);
    const double begin = now_seconds();
    const Evaluation evaluation = state_.evaluator->evaluate();
    state_.log.info("evaluation after step {}: validation loss {:.4f} over {} tokens ({:.1f} s)",
                    progress_.step, evaluation.loss, evaluation.tokens, now_seconds() - begin);
    state_.metrics.write("eval", {{"step", progress_.step},
                                  {"loss", evaluation.loss},
                                  {"tokens", evaluation.tokens},
                                  {"seconds", now_seconds() - begin}});
    return evaluation;
}

void Trainer::report(const StepResult& result, const Interval& interval) {
    const auto phase = state_.clock.enter(Phase::kLog);
    std::array<std::int64_t, 1> peak{peak_resident_bytes()};
    state_.world.all_reduce(peak, comm::Reduction::kMax);
    const double step_s = interval.seconds / static_cast<double>(interval.steps);
    const double rate = static_cast<double>(interval.tokens) / interval.seconds;
    const double left_s = step_s * static_cast<double>(options_.steps - result.step);
    state_.log.info(
        "step {:>{}}/{}  loss {:.4f}  norm {:.3f}  lr {:.2e}  {:>7.0f} tokens/s  {} left  {} a "
        "rank",
        result.step, std::to_string(options_.steps).size(), options_.steps, result.loss,
        result.grad_norm, result.lr, rate, duration_text(left_s), bytes_text(peak[0]));
    state_.metrics.write("step", {{"step", result.step},
                                  {"loss", result.loss},
                                  {"grad_norm", result.grad_norm},
                                  {"lr", result.lr},
                                  {"tokens", progress_.tokens},
                                  {"tokens_per_s", rate},
                                  {"step_s", step_s},
                                  {"mem_peak_bytes", peak[0]}});
}

void Trainer::save_checkpoint() {
    const auto phase = state_.clock.enter(Phase::kCheckpoint);
    const Checkpoints::Saved saved = state_.checkpoints.save(progress_);
    state_.log.info("checkpoint {} ({} a rank, {:.1f} s)", saved.folder.string(),
                    bytes_text(saved.bytes), saved.seconds);
    state_.metrics.write("checkpoint", {{"step", progress_.step},
                                        {"folder", saved.folder.string()},
                                        {"seconds", saved.seconds},
                                        {"bytes_of_rank_0", saved.bytes}});
}

Outcome Trainer::run() {
    Outcome outcome;
    const bool evaluates = state_.evaluator != nullptr;
    if (evaluates && progress_.step == 0) outcome.evaluations.push_back(evaluate());
    Interval interval;
    for (std::int64_t number = progress_.step + 1; number <= options_.steps; ++number) {
        const double begin = now_seconds();
        const StepResult result = step(number);
        const double seconds = now_seconds() - begin;
        ++steps_run_;
        tokens_run_ += result.tokens;
        seconds_in_steps_ += seconds;
        interval = {interval.seconds + seconds, interval.tokens + result.tokens,
                    interval.steps + 1};

        const auto due = [number](std::int64_t every) { return every > 0 && number % every == 0; };
        const bool last = number == options_.steps;
        outcome.stopped_early = result.asked_to_stop && !last;
        if (last || steps_run_ == 1 || due(options_.log_every) || outcome.stopped_early) {
            report(result, interval);
            interval = {};
        }
        if (evaluates && (last || due(options_.eval_every))) {
            outcome.evaluations.push_back(evaluate());
        }
        const bool final_one = last && options_.checkpoint_every > 0;
        if (outcome.stopped_early || final_one || due(options_.checkpoint_every)) {
            save_checkpoint();
        }
        if (outcome.stopped_early) break;
    }
    return outcome;
}

}  // namespace fullshard::train
