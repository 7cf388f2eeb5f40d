#include "train/start.h"

#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "comm/agree.h"
#include "train/parameter_groups.h"
#include "train/resume.h"
#include "train/run_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fullshard::train {

namespace {

/// The deck with the batch sizes that this number of ranks gives, so that it reproduces the run.
config::Deck with_batch(config::Deck deck, const config::Batch& batch) {
    deck.train.micro_batch = batch.micro_batch;
    deck.train.grad_accum_steps = batch.grad_accum_steps;
    deck.train.global_batch = batch.global_batch;
    return deck;
}

Start open_start(const config::Deck& deck, const ModelFactory& custom, const comm::Group& job) {
    std::optional<Start> start;
    comm::agree(job, [&] {
        const config::Batch batch = config::resolve_batch(deck.train, job.size());
        if (deck.fault.throw_at_step > 0 && deck.fault.rank >= job.size()) {
            throw UsageError(
                fmt::format("fault.rank = {} does not exist; the job has ranks 0 to {}",
                            deck.fault.rank, job.size() - 1));
        }
        auto model = make_model(deck, custom);
        spec::ModelSpec spec = with_groups(model->spec(), deck.optimizer);
        Datasets datasets =
            open_data(deck.data, deck.model.vocab_size, deck.run.seed, batch.micro_batch,
                      batch.grad_accum_steps * job.size(), deck.train.eval_max_sequences);
        std::vector<std::string> notes = datasets.notes;
        start = Start{with_batch(deck, batch), batch, std::move(model), std::move(spec),
                      std::move(datasets),     {},    std::move(notes)};
    });
    comm::agree_equal(job, "data", start->datasets.fingerprint);
    return std::move(*start);
}

/// The checkpoint that checkpoint.resume asks for. Collective.
std::optional<checkpoint::Chosen> find_checkpoint(const config::Deck& deck, const comm::Group& job,
                                                  std::vector<std::string>& notes) {
    if (deck.run.overwrite || deck.checkpoint.resume == "never") return std::nullopt;
    if (deck.checkpoint.resume != "auto") return checkpoint::choose(job, deck.checkpoint.resume);
    std::vector<std::string> skipped;
    const auto parent = deck.run.dir / checkpoint::kCheckpointsFolder;
    const auto chosen = checkpoint::choose_latest(job, parent, skipped);
    comm::agree(job, [&] {
        if (chosen || skipped.empty()) return;
        // Starting at step 0 over the remains of a run would be the worst surprise.
        throw DataError(
            fmt::format("no checkpoint in {} is whole: {}; set run.overwrite = on to start afresh",
                        parent.string(), fmt::join(skipped, "; ")));
    });
    for (const std::string& reason : skipped)
        notes.push_back("passed over a checkpoint: " + reason);
    return chosen;
}

}  // namespace

bool Start::continues_in_place() const {
    std::error_code error;
    return checkpoint &&
           std::filesystem::equivalent(checkpoint->folder.parent_path(),
                                       deck.run.dir / checkpoint::kCheckpointsFolder, error);
}

Start check_training(const config::Deck& deck, const ModelFactory& custom, const comm::Group& job) {
    Start start = open_start(deck, custom, job);
    start.checkpoint = find_checkpoint(start.deck, job, start.notes);
    comm::agree(job, [&] {
        if (start.checkpoint) {
            for (const std::string& change :
                 check_resumable(start.deck, start.checkpoint->manifest)) {
                start.notes.push_back("differs from the checkpoint, so results will too: " +
                                      change);
            }
        }
        if (job.rank() != 0) return;
        check_run_folder(start.deck.run.dir,
                         start.deck.run.overwrite || start.continues_in_place());
    });
    return start;
}

Start check_evaluation(const config::Deck& deck, const ModelFactory& custom,
                       const comm::Group& job) {
    Start start = open_start(deck, custom, job);
    comm::agree(job, [&] {
        if (!start.datasets.validation) {
            throw UsageError(
                "data.validation_fraction = 0 leaves nothing to evaluate on; set it above 0");
        }
        if (deck.model.init_from.empty()) {
            throw UsageError(
                "eval needs weights: set model.init_from to a checkpoint folder, a consolidated "
                ".h5 or a .safetensors file");
        }
    });
    return start;
}

}  // namespace fullshard::train
