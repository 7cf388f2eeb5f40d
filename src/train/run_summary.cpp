#include "train/run_summary.h"

#include "train/assemble.h"
#include "train/memory_usage.h"
#include "train/summary.h"
#include "train/text.h"

#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>
#include <string>

namespace fullshard::train {

namespace {

/// Floating-point operations a second over all ranks; 0 for a model whose operations nobody counts.
double flops_per_s(const config::Deck& deck, double tokens_per_s) {
    if (deck.model.family != config::Family::kSimpleTransformer) return 0.0;
    return tokens_per_s *
           spec::training_flops_per_token(model_of(deck.model, deck.data), deck.data.sequence);
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
    if (const auto& nats = run.start.datasets.unigram_entropy) {
        entropy = fmt::format("; unigram entropy {:.4f} nats", *nats);
        record["unigram_entropy"] = *nats;
    }
    log.info("validation loss {}{:.4f} after training{}", before, after, entropy);
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
    const double tokens_per_s =
        static_cast<double>(trainer.tokens_run()) / trainer.seconds_in_steps();
    const double flops = flops_per_s(run.start.deck, tokens_per_s);

    log.info(
        "{}: {} steps, {} tokens in {}, {:.0f} tokens/s{}",
        run.outcome.stopped_early ? "stopped on request" : "done", trainer.steps_run(),
        count_text(trainer.tokens_run()), duration_text(trainer.seconds_in_steps()), tokens_per_s,
        flops > 0.0 ? fmt::format(", {:.2f} GFLOP/s a rank", flops / world.size() * 1e-9) : "");
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
    log_traffic(log, predicted, run.counted);
    nlohmann::ordered_json record{{"steps", trainer.steps_run()},
                                  {"step", progress.step},
                                  {"skipped_steps", progress.skipped_steps},
                                  {"tokens", progress.tokens},
                                  {"seconds", trainer.seconds_in_steps()},
                                  {"tokens_per_s", tokens_per_s},
                                  {"stopped_early", run.outcome.stopped_early},
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
    if (flops > 0.0) record["flops_per_s"] = flops;
    summarise_losses(run, log, record);
    metrics.write("summary", record);
    if (run.outcome.stopped_early) {
        log.info("start it again to go on from step {}", progress.step);
    }
    log.info("everything is in {}", std::filesystem::absolute(run.start.deck.run.dir).string());
}

}  // namespace fullshard::train
