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

#include <utility>

namespace fullshard::train {

namespace {

Start open_start(const config::Deck& deck, const ModelFactory& custom, const comm::Group& job,
                 const Past& past = {}) {
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
        auto model = make_model(deck, custom);
        spec::ModelSpec spec = with_groups(model->spec(), deck.optimizer);
        Datasets datasets =
            open_data(deck.data, deck.model.vocab_size, deck.run.seed, batch.micro_batch,
                      batch.grad_accum_steps * job.size(), deck.train.eval_max_sequences);
        notes.insert(notes.end(), datasets.notes.begin(), datasets.notes.end());
        start =
            Start{// An elastic deck with the sizes of this number of ranks would contradict itself.
                  deck.elasticity.enabled ? deck : config::with_batch(deck, batch),
                  batch,
                  std::move(model),
                  std::move(spec),
                  std::move(datasets),
                  past.checkpoint,
                  past.folder_use,
                  past.steps_done,
                  past.finished,
                  std::move(notes)};
    });
    comm::agree_equal(job, "data", start->datasets.fingerprint);
    return std::move(*start);
}

}  // namespace

Start check_training(const config::Deck& deck, const ModelFactory& custom, const comm::Group& job) {
    const Past past = find_past(deck, job);
    Start start = open_start(deck, custom, job, past);
    comm::agree(job, [&] {
        if (!past.checkpoint || !past.deck) return;
        const config::Deck now = start.finished ? with_kept_batch(deck, *past.deck)
                                                : config::with_batch(start.deck, start.batch);
        for (const std::string& change : check_resumable(*past.deck, now)) {
            start.notes.push_back("differs from the checkpoint, so results will too: " + change);
        }
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
