#include "train/checkpoints.h"

#include "base/clock.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/parallel/save.h"
#include "comm/agree.h"

namespace fullshard::train {

Checkpoints::Checkpoints(const SavedState& state, std::filesystem::path parent,
                         checkpoint::Manifest header, std::int64_t keep_last)
    : state_(state),
      parent_(std::move(parent)),
      header_(std::move(header)),
      keep_last_(keep_last) {}

std::vector<checkpoint::Piece> Checkpoints::memory_of(const std::vector<OwnedPiece>& pieces) const {
    const std::vector<checkpoint::NamedShape> parameters = named_shapes(state_.layout);
    std::vector<checkpoint::Piece> list;
    for (const OwnedPiece& piece : pieces) {
        const auto add = [&](checkpoint::State state, std::span<float> owned) {
            list.push_back({state, piece.parameter, piece.parameter_begin, piece.in(owned)});
        };
        add(checkpoint::State::kModel, state_.store.master(piece.unit));
        if (!parameters[piece.parameter].trainable) continue;
        add(checkpoint::State::kFirstMoment, state_.optimizer.first_moment(piece.unit));
        add(checkpoint::State::kSecondMoment, state_.optimizer.second_moment(piece.unit));
    }
    return list;
}

Checkpoints::Saved Checkpoints::save(const checkpoint::Progress& progress) {
    const double begin = now_seconds();
    checkpoint::Manifest manifest = header_;
    manifest.progress = progress;
    const auto pieces = memory_of(exclusive_pieces(state_.layout, state_.store, state_.replicas));
    Saved saved;
    for (const auto& piece : pieces) {
        saved.bytes += static_cast<std::int64_t>(piece.values.size_bytes());
    }
    saved.folder =
        checkpoint::save(state_.world, parent_, manifest, named_shapes(state_.layout), pieces);
    comm::agree(state_.world, [&] {
        if (state_.world.rank() == 0) checkpoint::retain(parent_, keep_last_);
    });
    saved.seconds = now_seconds() - begin;
    return saved;
}

void Checkpoints::restore(const checkpoint::Chosen& chosen) {
    begin_update_of_all(state_.store, state_.layout);
    checkpoint::load(state_.world, chosen, named_shapes(state_.layout),
                     memory_of(owned_pieces(state_.layout, state_.store)));
    publish_all(state_.store, state_.layout);
    state_.optimizer.restore_step_count(chosen.manifest.progress.optimizer_step);
}

}  // namespace fullshard::train
