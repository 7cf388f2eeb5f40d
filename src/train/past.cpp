#include "train/past.h"

#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "comm/agree.h"
#include "config/batch.h"
#include "config/elasticity.h"
#include "config/parser.h"
#include "train/kept_batch.h"
#include "train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

namespace fullshard::train {

namespace fs = std::filesystem;

namespace {

constexpr const char* kOtherFolder = "name another folder, or set run.overwrite = on to replace it";

bool resumes_from_path(const config::Deck& deck) {
    return !deck.run.overwrite && deck.checkpoint.resume != "never" &&
           deck.checkpoint.resume != "auto";
}

/// The newest whole one in run.dir. Collective.
std::optional<checkpoint::Chosen> find_own_checkpoint(const config::Deck& deck,
                                                      const comm::Group& job,
                                                      std::vector<std::string>& notes) {
    std::vector<std::string> skipped;
    const auto parent = deck.run.dir / checkpoint::kCheckpointsFolder;
    const auto chosen = checkpoint::choose_latest(job, parent, skipped);
    comm::agree(job, [&] {
        if (job.rank() != 0 || chosen || !checkpoint::has_finished_save(parent)) return;
        // Starting at step 0 over the remains of a run would be the worst surprise.
        throw DataError(
            fmt::format("no checkpoint in {} is whole: {}; set run.overwrite = on to start afresh",
                        parent.string(), fmt::join(skipped, "; ")));
    });
    for (const std::string& reason : skipped)
        notes.push_back("passed over a checkpoint: " + reason);
    return chosen;
}

/// The checkpoint that checkpoint.resume asks for. Collective.
std::optional<checkpoint::Chosen> find_checkpoint(const config::Deck& deck, const comm::Group& job,
                                                  std::vector<std::string>& notes) {
    if (deck.run.overwrite || deck.checkpoint.resume == "never") return std::nullopt;
    if (resumes_from_path(deck)) return checkpoint::choose(job, deck.checkpoint.resume);
    return find_own_checkpoint(deck, job, notes);
}

/// Rank 0's look into run.dir for everybody. Collective.
std::optional<EarlierRun> find_earlier_run(const fs::path& folder, const comm::Group& job) {
    std::optional<EarlierRun> earlier;
    comm::agree(job, [&] {
        if (job.rank() == 0) earlier = read_earlier_run(folder);
    });
    // Rank 0's values are the largest: nobody else has any.
    std::array<std::int64_t, 3> values{-1, -1, -1};
    if (earlier) values = {1, earlier->had_checkpoint ? 1 : 0, earlier->finished_step.value_or(-1)};
    job.all_reduce(values, comm::Reduction::kMax);
    std::string text = job.broadcast(earlier ? earlier->effective_deck : "", 0);
    if (values[0] < 0) return std::nullopt;
    const auto finished = values[2] < 0 ? std::nullopt : std::optional(values[2]);
    return EarlierRun{std::move(text), finished, values[1] > 0};
}

config::Deck deck_of_earlier_run(const EarlierRun& earlier, const fs::path& folder) {
    try {
        if (earlier.effective_deck.empty()) throw UsageError("there is none");
        config::Deck deck = config::parse(earlier.effective_deck, kEffectiveDeckFile, {});
        if (deck.elasticity.enabled) {
            deck.train.global_batch = config::elastic_batch(deck.elasticity).global_batch;
        }
        return deck;
    } catch (const UsageError& error) {
        throw UsageError(
            fmt::format("run.dir = {} already holds a run whose {} cannot be read; {}: {}",
                        folder.string(), kEffectiveDeckFile, kOtherFolder, error.what()));
    }
}

/// Whether `checkpoint` is one of the run in `folder`.
bool is_in(const fs::path& folder, const checkpoint::Chosen& checkpoint) {
    std::error_code ignored;
    return fs::equivalent(checkpoint.folder.parent_path(), folder / checkpoint::kCheckpointsFolder,
                          ignored);
}

/// What becomes of run.dir where a checkpoint goes on or no run may be there. Collective.
FolderUse use_of_folder(const config::Deck& deck, const Past& past, const comm::Group& job) {
    std::array<std::int64_t, 1> in_place{0};
    comm::agree(job, [&] {
        if (job.rank() != 0) return;
        in_place[0] = past.checkpoint && is_in(deck.run.dir, *past.checkpoint) ? 1 : 0;
        if (deck.run.overwrite || in_place[0] == 1 || !holds_run(deck.run.dir)) return;
        throw UsageError(
            fmt::format("run.dir = {} already holds a run that checkpoint.resume = {} does not go "
                        "on with; {}",
                        deck.run.dir.string(), deck.checkpoint.resume.string(), kOtherFolder));
    });
    job.all_reduce(in_place, comm::Reduction::kMax);
    if (in_place[0] == 0) return FolderUse::kNew;
    return past.finished ? FolderUse::kLeave : FolderUse::kContinue;
}

/// What becomes of a run in run.dir that has no checkpoint of its own; `from` says where it starts
/// again. Collective.
void judge_unsaved_run(const EarlierRun& earlier, const config::Deck& deck, const std::string& from,
                       const comm::Group& job, Past& past) {
    comm::agree(job, [&] {
        past.deck = deck_of_earlier_run(earlier, deck.run.dir);
        past.folder_use = use_of_earlier_run(earlier, *past.deck, deck);
        if (past.folder_use == FolderUse::kLeave) {
            past.steps_done = *earlier.finished_step;
            past.finished = true;
            return;
        }
        past.notes.push_back(fmt::format(
            "{} holds a run of this deck that was interrupted before its first checkpoint: it "
            "starts again {}",
            deck.run.dir.string(), from));
    });
}

/// A job that is put back into the queue repeats its checkpoint.resume = PATH, though its run has
/// gone on from there: the run in run.dir, if it began so. Going back within one folder on purpose
/// is no repetition. Collective.
std::optional<EarlierRun> find_repeated_run(const config::Deck& deck, const comm::Group& job) {
    if (!resumes_from_path(deck)) return std::nullopt;
    auto earlier = find_earlier_run(deck.run.dir, job);
    std::array<std::int64_t, 1> repeats{0};
    comm::agree(job, [&] {
        if (job.rank() != 0 || !earlier) return;
        const fs::path inside = fs::weakly_canonical(deck.checkpoint.resume)
                                    .lexically_relative(fs::weakly_canonical(deck.run.dir));
        if (!inside.empty() && *inside.begin() != "..") return;
        const config::Deck before = deck_of_earlier_run(*earlier, deck.run.dir);
        repeats[0] = before.checkpoint.resume == deck.checkpoint.resume ? 1 : 0;
    });
    job.all_reduce(repeats, comm::Reduction::kMax);
    if (repeats[0] == 0) earlier.reset();
    return earlier;
}

}  // namespace

std::optional<config::Deck> deck_of_checkpoint(const checkpoint::Manifest& manifest) {
    if (manifest.effective_deck.empty()) return std::nullopt;
    config::Deck deck = config::parse(manifest.effective_deck, "the checkpoint's deck", {});
    if (!deck.elasticity.enabled) return deck;
    const config::Batch batch = config::resolve_batch(deck, manifest.writer.ranks);
    return config::with_batch(std::move(deck), batch);
}

FolderUse use_of_earlier_run(const EarlierRun& earlier, const config::Deck& before,
                             const config::Deck& deck) {
    const std::string folder = fmt::format("run.dir = {}", deck.run.dir.string());
    const Changes changes = changes_between(before, with_kept_batch(deck, before));
    if (!changes.forbidden.empty()) {
        throw UsageError(
            fmt::format("{} already holds a run of another deck; set these keys back, {}:\n  {}",
                        folder, kOtherFolder, fmt::join(changes.forbidden, "\n  ")));
    }
    if (earlier.finished_step && *earlier.finished_step >= deck.train.steps) {
        return FolderUse::kLeave;
    }
    if (earlier.finished_step) {
        throw UsageError(
            fmt::format("{} already holds a run that is finished after step {} and left no "
                        "checkpoint to go on from; {}",
                        folder, *earlier.finished_step, kOtherFolder));
    }
    if (earlier.had_checkpoint) {
        throw UsageError(fmt::format("{} already holds a run whose checkpoints are gone; {}",
                                     folder, kOtherFolder));
    }
    return FolderUse::kStartAgain;
}

Past find_past(const config::Deck& deck, const comm::Group& job) {
    Past past;
    comm::agree(job, [&] {
        if (job.rank() == 0) check_run_folder(deck.run.dir);
    });
    const auto repeated = find_repeated_run(deck, job);
    if (repeated) {
        past.checkpoint = find_own_checkpoint(deck, job, past.notes);
        if (!past.checkpoint) {
            judge_unsaved_run(*repeated, deck, "from " + deck.checkpoint.resume.string(), job,
                              past);
        }
        if (past.finished) return past;
    }
    if (!past.checkpoint) past.checkpoint = find_checkpoint(deck, job, past.notes);
    if (past.checkpoint) {
        const checkpoint::Progress& progress = past.checkpoint->manifest.progress;
        past.steps_done = progress.step;
        past.finished = progress.step >= deck.train.steps;
        if (past.finished && progress.evaluation_pending) {
            // The checkpoint cannot know whether a later start has made up for it.
            const auto earlier = find_earlier_run(deck.run.dir, job);
            past.finished = earlier && earlier->finished_step.value_or(0) >= deck.train.steps;
        }
    }
    if (!past.checkpoint && !deck.run.overwrite && deck.checkpoint.resume == "auto") {
        if (const auto earlier = find_earlier_run(deck.run.dir, job))
            judge_unsaved_run(*earlier, deck, "at step 0", job, past);
        return past;
    }
    if (past.folder_use != FolderUse::kStartAgain) past.folder_use = use_of_folder(deck, past, job);
    comm::agree(job, [&] {
        if (past.checkpoint) past.deck = deck_of_checkpoint(past.checkpoint->manifest);
    });
    return past;
}

}  // namespace fullshard::train
