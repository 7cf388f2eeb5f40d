#include "checkpoint/parallel/saver.h"

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/format/data_files.h"
#include "checkpoint/format/folder.h"
#include "comm/agree.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>

namespace fullshard::checkpoint {

namespace fs = std::filesystem;

Saver::Saver(const SavingRanks& ranks, fs::path parent, std::vector<NamedShape> parameters,
             StageHook at_stage)
    : ranks_(ranks),
      parent_(std::move(parent)),
      parameters_(std::move(parameters)),
      at_stage_(std::move(at_stage)) {}

namespace {

/// Reads the structures of the files, writes the manifest and publishes the folder. Neither MPI nor
/// HDF5 is called.
fs::path commit(const fs::path& folder, Manifest manifest, std::int64_t files,
                const StageHook& at_stage) {
    if (at_stage) at_stage(SaveStage::kBeforeManifest);
    for (std::int64_t i = 0; i < files; ++i) {
        manifest.files.push_back(
            read_structure(folder / state_file_name(i, files), manifest.tensors, i));
    }
    if (files > 1)
        manifest.files.push_back(read_structure(folder / kIndexFile, manifest.tensors, files));
    return commit_save(folder, manifest, at_stage);
}

}  // namespace

template <typename Work>
auto Saver::or_discard(const fs::path& folder, Work work) {
    try {
        return work();
    } catch (const comm::AgreedError&) {
        if (ranks_.world.rank() == 0) discard_save(folder);
        throw;
    }
}

fs::path Saver::begin(const Manifest& header, std::span<const Piece> pieces) {
    ensure(!in_flight(), "one save at a time");
    if (!layout_) layout_.emplace(ranks_, parameters_, pieces);
    const fs::path folder = temporary_folder(parent_, header.progress.step);
    return or_discard(folder, [&] {
        const bool one_file = ranks_.files == 1;
        comm::agree(ranks_.world, [&] {
            if (ranks_.world.rank() != 0) return;
            begin_save(parent_, header.progress.step);
            require_space(parent_, layout_->bytes());
            if (one_file) layout_->create_file(folder);
        });
        if (!one_file) comm::agree(ranks_.world, [&] { layout_->create_file(folder); });
        layout_->share_offsets();
        if (!one_file) {
            comm::agree(ranks_.world, [&] {
                if (ranks_.world.rank() == 0)
                    create_index_file(folder, layout_->tensors(), ranks_.files);
            });
        }
        return folder;
    });
}

Manifest Saver::manifest_of(const Manifest& header, std::span<const WrittenBlock> written) const {
    Manifest manifest = header;
    manifest.tensors = layout_->with_blocks(written);
    return manifest;
}

fs::path Saver::save(const Manifest& header, std::span<const Piece> pieces) {
    const fs::path folder = begin(header, pieces);
    return or_discard(folder, [&] {
        Manifest manifest = manifest_of(
            header, write_together(*layout_, folder, layout_->place(pieces), at_stage_));
        fs::path committed;
        comm::agree(ranks_.world, [&] {
            if (ranks_.world.rank() == 0)
                committed = commit(folder, std::move(manifest), ranks_.files, at_stage_);
        });
        return fs::path(ranks_.world.broadcast(committed.string(), 0));
    });
}

void Saver::start(const Manifest& header, std::span<const Piece> pieces) {
    const fs::path folder = begin(header, pieces);
    or_discard(folder, [&] {
        try {
            comm::agree(ranks_.world, [&] {
                writer_.start(*layout_, folder, layout_->place(pieces), at_stage_);
            });
        } catch (const comm::AgreedError&) {
            writer_.forget();  // it may have started here and not elsewhere
            throw;
        }
    });
    given_up_ = std::make_shared<std::atomic<bool>>(false);
    pending_ = {header, folder};
}

bool Saver::step_ended() const {
    if (!pending_->committing) return writer_.ended();
    return ranks_.world.rank() != 0 || committer_.ended();
}

std::optional<fs::path> Saver::advance() {
    const bool first = ranks_.world.rank() == 0;
    Pending save = *std::exchange(pending_, std::nullopt);
    return or_discard(save.folder, [&]() -> std::optional<fs::path> {
        if (save.committing) {
            fs::path committed;
            comm::agree(ranks_.world, [&] {
                if (first) committed = committer_.take();
            });
            return ranks_.world.broadcast(committed.string(), 0);
        }
        std::vector<WrittenBlock> written;
        comm::agree(ranks_.world, [&] { written = writer_.take(); });
        Manifest manifest = manifest_of(save.header, written);
        comm::agree(ranks_.world, [&] {
            if (!first) return;
            // A save that was given up must not appear later, when the disk is back.
            const StageHook unless_given_up = [given_up = given_up_,
                                               at_stage = at_stage_](SaveStage stage) {
                if (*given_up) throw RunError("the save was given up");
                if (at_stage) at_stage(stage);
            };
            committer_.start([folder = save.folder, manifest = std::move(manifest),
                              files = ranks_.files, unless_given_up]() mutable {
                return commit(folder, std::move(manifest), files, unless_given_up);
            });
        });
        save.committing = true;
        pending_ = std::move(save);
        return std::nullopt;
    });
}

std::optional<fs::path> Saver::poll() {
    if (!in_flight()) return std::nullopt;
    std::array<std::int64_t, 1> ended{step_ended() ? 1 : 0};
    ranks_.world.all_reduce(ended, comm::Reduction::kMin);
    if (ended[0] == 0) return std::nullopt;
    return advance();
}

fs::path Saver::wait(double timeout_s) {
    ensure(in_flight(), "something to wait for");
    const double deadline = now_seconds() + timeout_s;
    while (true) {
        // Asked again and again, so that no rank waits in MPI longer than its deadline there.
        std::array<std::int64_t, 2> state{step_ended() ? 1 : 0, now_seconds() < deadline ? 1 : 0};
        ranks_.world.all_reduce(state, comm::Reduction::kMin);
        if (state[0] == 1) {
            if (auto folder = advance()) return *std::move(folder);
            continue;
        }
        if (state[1] == 0) {
            *given_up_ = true;
            writer_.abandon();
            committer_.abandon();
            const Pending lost = *std::exchange(pending_, std::nullopt);
            throw comm::AgreedError(
                fmt::format("{} was not written within {} s; is the file system down?",
                            lost.folder.string(), timeout_s),
                ExitCode::kRunError);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

}  // namespace fullshard::checkpoint
