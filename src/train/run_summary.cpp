#include "train/run_summary.h"

#include "train/memory_usage.h"
#include "train/next_steps.h"
#include "train/summary.h"
#include "train/text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace fullshard::train {

namespace {

std::string exit_reason(const Outcome& outcome) {
    if (!outcome.stopped_early) return "done";
    return outcome.stop_reason.empty() ? "stopped on request"
                                       : fmt::format("stopped early ({})", outcome.stop_reason);
}

void log_speed(const FinishedRun& run, const Throughput& speed, Log& log) {
    const Trainer& trainer = run.trainer;
    log.info("{}: {} steps, {} tokens in {}, {:.0f} tokens/s, {:.0f} a rank{}",
             exit_reason(run.outcome), trainer.steps_run(), count_text(trainer.tokens_run()),
             duration_text(trainer.seconds_in_steps()), speed.tokens_per_s,
             speed.tokens_per_s_of_rank,
             speed.flops_per_s_of_rank
                 ? fmt::format(", {:.2f} GFLOP/s a rank", *speed.flops_per_s_of_rank * 1e-9)
                 : "");
    if (trainer.steps_run() == 0) return;
    if (speed.peak_too_low) {
        if (run.sharded.world().rank() == 0) log.warn("{}", speed.mfu_text);
    } else {
        log.info("{}", speed.mfu_text);
    }
    if (speed.mfu) log.info("  {}", kFlopsFormula);
}

nlohmann::ordered_json to_json(const Throughput& speed, const Peak& peak) {
    nlohmann::ordered_json object{{"tokens_per_s_of_rank", speed.tokens_per_s_of_rank},
                                  {"mfu_text", speed.mfu_text}};
    if (speed.flops_per_token) object["flops_per_token"] = *speed.flops_per_token;
    if (speed.flops_per_s_of_rank) object["flops_per_s_of_rank"] = *speed.flops_per_s_of_rank;
    if (peak.known()) object["peak_flops_per_s"] = peak.mean;
    if (speed.mfu) object["mfu"] = *speed.mfu;
    return object;
}

void summarise_losses(const FinishedRun& run, Log& log, nlohmann::ordered_json& record) {
    const auto& evaluations = run.outcome.evaluations;
    if (evaluations.empty()) return;
    const double after = evaluations.back().loss;
    record["validation_loss_after"] = after;
    std::string before;
    if (run.start.progress().step == 0) {
        before = fmt::format("{:.4f} before, ", evaluations.front().loss);
        record["validation_loss_before"] = evaluations.front().loss;
    }
    std::string entropy;
    // Several sources have entropies of their own, which no loss of all of them compares with.
    const auto& validation = run.start.datasets.validation;
    if (const auto nats =
            validation.size() == 1 ? validation.front().unigram_entropy : std::nullopt) {
        entropy = fmt::format("; unigram entropy {:.4f} nats", *nats);
        record["unigram_entropy"] = *nats;
    }
    log.info("validation loss {}{:.4f} after training{}", before, after, entropy);
}

/// How much communication between ranks the recorded steps hid, over all ranks. Collective.
void summarise_trace(const FinishedRun& run, Log& log, nlohmann::ordered_json& record) {
    if (run.trace == nullptr || !run.trace->written()) return;
    std::array<double, 2> seconds{run.trace->overlap().in_flight_s, run.trace->overlap().hidden_s};
    run.sharded.world().all_reduce(seconds, comm::Reduction::kSum);
    const Overlap overlap{seconds[0], seconds[1]};
    const auto fraction = overlap.fraction();
    log.info("trace: {} ({})", run.trace->file().string(),
             fraction ? fmt::format("{:.0f} % of {:.3f} s of gathers and reductions in flight were "
                                    "hidden behind computing",
                                    100.0 * *fraction, overlap.in_flight_s)
                      : "nothing was in flight between ranks");
    if (fraction) record["overlap"] = *fraction;
}

/// What the devices hold at the end, when what was needed once is still cached. Collective.
void summarise_device(const FinishedRun& run, Log& log, nlohmann::ordered_json& record) {
    const RunDevice* device = run.sharded.device();
    if (device == nullptr) return;
    const device::MemoryInfo memory = device->memory();
    std::array<std::int64_t, 1> used{memory.total_bytes - memory.free_bytes};
    run.sharded.world().all_reduce(used, comm::Reduction::kMax);
    record["device_used_bytes"] = used[0];
    log.info("device: at most {} of {} in use at the end, by all processes", bytes_text(used[0]),
             bytes_text(memory.total_bytes));
}

/// How many tokens came from each source, where there are several.
void summarise_sources(const FinishedRun& run, Log& log, nlohmann::ordered_json& record) {
    const auto sources = run.start.datasets.training->sources();
    if (sources.size() < 2) return;
    const std::span<const std::int64_t> tokens = run.trainer.tokens_by_source();
    const auto all =
        std::max<std::int64_t>(1, std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0}));
    std::string text;
    for (std::size_t i = 0; i < sources.size(); ++i) {
        record["tokens_by_source"][sources[i].name] = tokens[i];
        text += fmt::format("{}{} {} ({:.1f} %)", text.empty() ? "" : ", ", sources[i].name,
                            count_text(tokens[i]),
                            100.0 * static_cast<double>(tokens[i]) / static_cast<double>(all));
    }
    log.info("tokens by source: {}", text);
}

}  // namespace

void summarise(const FinishedRun& run, Log& log, Metrics& metrics) {
    ShardedModel& sharded = run.sharded;
    const Trainer& trainer = run.trainer;
    const checkpoint::Progress& progress = trainer.progress();
    const comm::Group& world = sharded.world();

    auto planned = sharded.plan().memory();
    auto allocated = sharded.store().allocations();
    allocated.push_back({"AdamW moments", run.optimizer.state_bytes()});
    if (const std::int64_t bytes = run.checkpoints.planned_staging_bytes(); bytes > 0) {
        planned.push_back({"checkpoint copy", bytes});
        allocated.push_back({"checkpoint copy", run.checkpoints.staging_bytes()});
    }
    const shard::Traffic predicted = sharded.plan().traffic(trainer.work());
    const PhaseStatistics phases = gather_phases(sharded.clock().seconds(), world);
    const MemoryUsage usage = memory_usage();
    std::array<std::int64_t, 1> node_bytes{usage.proportional}, peak{usage.peak_resident};
    sharded.topology().node.all_reduce(node_bytes, comm::Reduction::kSum);
    world.all_reduce(peak, comm::Reduction::kMax);
    std::array<double, 1> page_faults{trainer.steady_page_faults().value_or(0.0)};
    world.all_reduce(page_faults, comm::Reduction::kMax);
    const Throughput speed = throughput_of(
        static_cast<double>(trainer.tokens_run()), trainer.seconds_in_steps(), world.size(),
        model_flops_per_token(run.start.deck, run.start.spec), run.peak);
    const std::vector<std::string> next =
        next_steps({.stopped_early = run.outcome.stopped_early,
                    .step = progress.step,
                    .saved = trainer.saves().saved > 0,
                    .evaluates = !run.start.datasets.validation.empty()},
                   run.start.deck, run.launch, world.size());

    log_speed(run, speed, log);
    if (progress.skipped_steps > 0) {
        log.info("{} of {} steps were skipped", progress.skipped_steps, progress.step);
    }
    const SaveTotals& saves = trainer.saves();
    if (saves.saved + saves.failed > 0) {
        log.info(
            "checkpoints: {} saved in {:.2f} s, {} failed; training stood still for {:.3f} s, "
            "{:.3f} s at most for one",
            saves.saved, saves.seconds, saves.failed, saves.stall_s, saves.longest_stall_s);
    }
    log_phases(log, phases);
    log_memory(log, planned, allocated);
    log.info("measured: {} on this node (shared pages once), at most {} resident in a rank",
             bytes_text(node_bytes[0]), bytes_text(peak[0]));
    if (trainer.steady_page_faults()) {
        log.info("page faults: {:.1f} a step in a rank at most, after the first {} steps",
                 page_faults[0], Trainer::kWarmUpSteps);
    }
    log_traffic(log, predicted, run.counted);
    nlohmann::ordered_json record{{"steps", trainer.steps_run()},
                                  {"step", progress.step},
                                  {"skipped_steps", progress.skipped_steps},
                                  {"tokens", progress.tokens},
                                  {"seconds", trainer.seconds_in_steps()},
                                  {"tokens_per_s", speed.tokens_per_s},
                                  {"stopped_early", run.outcome.stopped_early},
                                  {"exit_reason", exit_reason(run.outcome)},
                                  {"next", next},
                                  {"checkpoints_saved", saves.saved},
                                  {"checkpoints_failed", saves.failed},
                                  {"checkpoint_stall_s", saves.stall_s},
                                  {"phases_s", to_json(phases)},
                                  {"memory_predicted", to_json(planned)},
                                  {"memory_allocated", to_json(allocated)},
                                  {"node_proportional_bytes", node_bytes[0]},
                                  {"mem_peak_bytes", peak[0]},
                                  {"traffic_predicted", to_json(predicted)},
                                  {"traffic_counted", to_json(run.counted)}};
    if (trainer.steady_page_faults()) record["page_faults_a_step"] = page_faults[0];
    record.update(to_json(speed, run.peak));
    summarise_losses(run, log, record);
    summarise_sources(run, log, record);
    summarise_device(run, log, record);
    summarise_trace(run, log, record);
    metrics.write("summary", record);
    for (const std::string& line : next) log.info("{}", line);
    if (log.lost_lines() > 0) {
        log.warn("this log is not complete: {} writes failed", log.lost_lines());
    }
    log.info("everything is in {}", std::filesystem::absolute(run.start.deck.run.dir).string());
}

}  // namespace fullshard::train
