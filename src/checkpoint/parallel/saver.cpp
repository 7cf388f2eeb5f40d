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
        comm::agree(ranks_.world, [&] {
            if (ranks_.world.rank() != 0) return;
            begin_save(parent_, header.progress.step);
            require_space(parent_, layout_->bytes());
        });
        comm::agree(ranks_.world, [&] { layout_->create_file(folder); });
        layout_->share_offsets();
        return folder;
    });
}

fs::path Saver::commit(const Manifest& header, const fs::path& folder,
                       std::span<const WrittenBlock> written) {
    std::vector<TensorEntry> tensors = layout_->with_blocks(written);
    fs::path committed;
    comm::agree(ranks_.world, [&] {
        if (ranks_.world.rank() != 0) return;
        if (at_stage_) at_stage_(SaveStage::kBeforeManifest);
        Manifest manifest = header;
        if (ranks_.files > 1) create_index_file(folder, tensors, ranks_.files);
        const std::int64_t files = ranks_.files + (ranks_.files > 1 ? 1 : 0);
        for (std::int64_t i = 0; i < files; ++i) {
            const std::string name =
                i < ranks_.files ? state_file_name(i, ranks_.files) : std::string(kIndexFile);
            manifest.files.push_back(read_structure(folder / name, tensors, i));
        }
        manifest.tensors = std::move(tensors);
        // What readers will check is checked before anything is committed: uncovered elements above
        // all.
        parse_manifest(to_json(manifest), "the new checkpoint");
        committed = commit_save(folder, manifest, at_stage_);
    });
    return ranks_.world.broadcast(committed.string(), 0);
}

fs::path Saver::save(const Manifest& header, std::span<const Piece> pieces) {
    const fs::path folder = begin(header, pieces);
    return or_discard(folder, [&] {
        return commit(header, folder,
                      write_together(*layout_, folder, layout_->place(pieces), at_stage_));
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
    pending_ = {header, folder};
}

fs::path Saver::finish() {
    const Pending done = *std::exchange(pending_, std::nullopt);
    return or_discard(done.folder, [&] {
        std::vector<WrittenBlock> written;
        comm::agree(ranks_.world, [&] { written = writer_.take(); });
        return commit(done.header, done.folder, written);
    });
}

std::optional<fs::path> Saver::poll() {
    if (!in_flight()) return std::nullopt;
    std::array<std::int64_t, 1> ended{writer_.ended() ? 1 : 0};
    ranks_.world.all_reduce(ended, comm::Reduction::kMin);
    if (ended[0] == 0) return std::nullopt;
    return finish();
}

fs::path Saver::wait(double timeout_s) {
    ensure(in_flight(), "something to wait for");
    const double deadline = now_seconds() + timeout_s;
    while (true) {
        // Asked again and again, so that no rank waits in MPI longer than its deadline there.
        std::array<std::int64_t, 2> state{writer_.ended() ? 1 : 0,
                                          now_seconds() < deadline ? 1 : 0};
        ranks_.world.all_reduce(state, comm::Reduction::kMin);
        if (state[0] == 1) return finish();
        if (state[1] == 0) {
            writer_.abandon();
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
