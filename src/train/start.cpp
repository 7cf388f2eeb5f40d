#include "train/start.h"

#include "base/error.h"
#include "comm/agree.h"
#include "config/checks.h"
#include "config/world_sizes.h"
#include "train/kept_batch.h"
#include "train/parameter_groups.h"
#include "train/past.h"
#include "train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace fullshard::train {

namespace {

Start open_start(const config::Deck& deck, const ModelFactory& custom, const comm::Group& job,
                 Purpose purpose, const Past& past = {}) {
    std::optional<Start> start;
    comm::agree(job, [&] {
        std::vector<std::string> notes = past.notes;
        // A finished run stays finished on any number of ranks.
        const bool goes_on = past.deck && !past.finished;
        const config::Batch batch = goes_on
                                        ? resolve_kept_batch(deck, *past.deck, job.size(), notes)
                                        : config::resolve_batch(deck, job.size());
        if (config::happens_to_a_rank(deck.fault) && deck.fault.rank >= job.size()) {
            throw UsageError(
                fmt::format("fault.rank = {} does not exist; the job has ranks 0 to {}",
                            deck.fault.rank, job.size() - 1));
        }
        check_tokenizer(deck.data.tokenizer);
        auto model = make_model(deck, custom);
        spec::ModelSpec spec = with_groups(model->spec(), deck.optimizer);
        Datasets datasets =
            open_data(deck.data, deck.model.vocab_size, deck.run.seed, batch.micro_batch,
                      batch.grad_accum_steps * job.size(), deck.train.eval_max_sequences, purpose);
        notes.insert(notes.end(), datasets.notes.begin(), datasets.notes.end());
        start =
            Start{// An elastic deck with the sizes of this number of ranks would contradict itself.
                  deck.elasticity.enabled ? deck : config::with_batch(deck, batch),
                  batch,
                  std::move(model),
                  std::move(spec),
                  std::move(datasets),
                  {},
                  past.checkpoint,
                  past.folder_use,
                  past.steps_done,
                  past.finished,
                  std::move(notes)};
    });
    comm::agree_equal(job, "data", start->datasets.fingerprint);
    start->gemm =
        choose_gemm(deck.kernels, past.deck ? std::optional(past.deck->kernels.gemm) : std::nullopt,
                    *start->model, job);
    start->deck.kernels.gemm = start->gemm.key;
    start->notes.insert(start->notes.end(), start->gemm.notes.begin(), start->gemm.notes.end());
    return std::move(*start);
}

/// The keys are the same: somebody changed what they name.
void require_same_data(std::uint64_t of_checkpoint, const Datasets& now) {
    if (of_checkpoint == 0 || of_checkpoint == now.fingerprint) return;
    throw DataError(fmt::format(
        "the data are not those that the checkpoint was trained on, though their names are: {}; "
        "bring the files back, or start a new run with checkpoint.resume = never (and "
        "model.init_from for the weights alone)",
        fmt::join(now.description, "; ")));
}

}  // namespace

Start check_training(const config::Deck& deck, const ModelFactory& custom, const comm::Group& job) {
    const Past past = find_past(deck, job);
    Start start = open_start(deck, custom, job, Purpose::kTraining, past);
    comm::agree(job, [&] {
        if (!past.checkpoint || !past.deck) return;
        const config::Deck now = start.finished
                                     ? with_kept_gemm(with_kept_batch(deck, *past.deck), *past.deck)
                                     : config::with_batch(start.deck, start.batch);
        for (const std::string& change : check_resumable(*past.deck, now)) {
            start.notes.push_back("differs from the checkpoint, so results will too: " + change);
        }
        if (!start.finished)
            require_same_data(past.checkpoint->manifest.data_fingerprint, start.datasets);
    });
    return start;
}

Start check_evaluation(const config::Deck& deck, const ModelFactory& custom,
                       const comm::Group& job) {
    Start start = open_start(deck, custom, job, Purpose::kEvaluation);
    comm::agree(job, [&] {
        if (start.datasets.validation.empty()) {
            throw UsageError(
                "data.validation_fraction = 0 leaves nothing to evaluate on; set it above 0, or "
                "data.validation_path");
        }
        if (deck.model.init_from.empty()) {
            throw UsageError(
                "eval needs weights: set model.init_from to a checkpoint folder, a consolidated "
                ".h5, or weights of another program");
        }
    });
    return start;
}

std::string world_sizes_of_run(const config::Deck& deck, const comm::Group& job) {
    const Past past = find_past(deck, job);
    std::string text;
    comm::agree(job, [&] {
        text = config::world_sizes_table(past.deck ? with_kept_batch(deck, *past.deck) : deck);
        if (past.checkpoint)
            text = fmt::format("to go on from {}:\n{}", past.checkpoint->folder.string(), text);
    });
    return text;
}

}  // namespace fullshard::train
