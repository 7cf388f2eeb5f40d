#include "train/checkpoints.h"

#include "base/clock.h"
#include "checkpoint/format/folder.h"
#include "comm/agree.h"

#include <signal.h>
#include <unistd.h>

#include <exception>
#include <numeric>
#include <utility>

namespace fullshard::train {

namespace {

config::SaveStage key_of(checkpoint::SaveStage stage) {
    using From = checkpoint::SaveStage;
    using To = config::SaveStage;
    switch (stage) {
        case From::kBeforeData:
            return To::kBeforeData;
        case From::kDuringData:
            return To::kDuringData;
        case From::kBeforeManifest:
            return To::kBeforeManifest;
        case From::kBeforeComplete:
            return To::kBeforeComplete;
        case From::kBeforeRename:
            return To::kBeforeRename;
        case From::kBeforeRetain:
            return To::kBeforeRetain;
    }
    return To::kNone;
}

std::int64_t bytes_of(const std::vector<checkpoint::Piece>& pieces) {
    std::int64_t bytes = 0;
    for (const auto& piece : pieces) bytes += static_cast<std::int64_t>(piece.values.size_bytes());
    return bytes;
}

/// Of the parameter and, where it is trained, of both moments.
std::int64_t saved_elements(const OwnedPiece& place,
                            const std::vector<checkpoint::NamedShape>& parameters) {
    return place.count * (parameters[place.parameter].trainable ? 3 : 1);
}

}  // namespace

checkpoint::SavingRanks saving_ranks(config::CheckpointFiles files,
                                     const comm::Topology& topology) {
    if (files == config::CheckpointFiles::kOne || topology.nodes() == 1) {
        return {topology.world, topology.world};
    }
    return {topology.world, topology.node, topology.node_index, topology.nodes()};
}

std::int64_t checkpoint_bytes(const shard::Layout& layout) {
    std::int64_t bytes = 0;
    for (const shard::Unit& unit : layout.units) {
        for (const spec::ParameterSpec& parameter : unit.parameters())
            bytes += parameter.numel() * (parameter.trainable ? 3 : 1) * size_of(DType::kFloat32);
    }
    return bytes;
}

checkpoint::StageHook stage_hook(const config::Fault& fault, std::int64_t rank) {
    if (fault.kill_in_save == config::SaveStage::kNone || fault.rank != rank) return {};
    return [wanted = fault.kill_in_save](checkpoint::SaveStage stage) {
        if (key_of(stage) == wanted) ::kill(::getpid(), SIGKILL);
    };
}

Checkpoints::Checkpoints(const SavedState& state, const checkpoint::SavingRanks& ranks,
                         std::filesystem::path parent, checkpoint::Manifest header,
                         const config::Checkpoint& keys, checkpoint::StageHook at_stage)
    : state_(state),
      view_(state.layout, state.store, state.optimizer),
      parent_(std::move(parent)),
      header_(std::move(header)),
      keys_(keys),
      at_stage_(std::move(at_stage)),
      saver_(ranks, parent_, named_shapes(state.layout), at_stage_) {
    state_.optimizer.add_reader(*this);
}

Checkpoints::~Checkpoints() {
    state_.optimizer.remove_reader(*this);
}

void Checkpoints::finish_reading(std::int64_t unit) {
    if (!saver_.in_flight() || view_.is_copy()) return;
    const double begin = now_seconds();
    saver_.wait_for_copy(elements_until_.at(static_cast<std::size_t>(unit)));
    report_.stall_s += now_seconds() - begin;
}

std::vector<checkpoint::Piece> Checkpoints::memory_of(const std::vector<OwnedPiece>& pieces) {
    const std::vector<checkpoint::NamedShape> parameters = named_shapes(state_.layout);
    std::vector<checkpoint::Piece> list;
    for (const OwnedPiece& piece : pieces) {
        const auto add = [&](checkpoint::State state, std::span<float> owned) {
            list.push_back({state, piece.parameter, piece.parameter_begin, piece.in(owned)});
        };
        add(checkpoint::State::kModel, view_.master(piece.unit));
        if (!parameters[piece.parameter].trainable) continue;
        add(checkpoint::State::kFirstMoment, view_.first_moment(piece.unit));
        add(checkpoint::State::kSecondMoment, view_.second_moment(piece.unit));
    }
    return list;
}

std::vector<checkpoint::Piece> Checkpoints::exclusive_memory() {
    const auto places = exclusive_pieces(state_.layout, state_.store, state_.replicas);
    const auto parameters = named_shapes(state_.layout);
    elements_until_.assign(state_.layout.units.size(), 0);
    for (const OwnedPiece& place : places) {
        elements_until_[static_cast<std::size_t>(place.unit)] += saved_elements(place, parameters);
    }
    std::partial_sum(elements_until_.begin(), elements_until_.end(), elements_until_.begin());
    return memory_of(places);
}

void Checkpoints::begin_deletion(const std::filesystem::path& newest) {
    if (state_.world.rank() != 0) return;
    if (at_stage_) at_stage_(checkpoint::SaveStage::kBeforeRetain);
    end_deletion();
    deletion_ = std::async(
        std::launch::async,
        [parent = parent_, wanted = checkpoint::Retention{keys_.keep_last, keys_.keep_every},
         newest]() -> std::string {
            try {
                checkpoint::retain(parent, wanted, newest);
                return {};
            } catch (const std::exception& error) {
                return error.what();
            }
        });
}

void Checkpoints::end_deletion() {
    if (!deletion_.valid()) return;
    if (std::string failure = deletion_.get(); !failure.empty())
        left_.push_back(std::move(failure));
}

template <typename Work>
std::optional<SaveReport> Checkpoints::step_of_save(bool must_succeed, Work work) {
    const double begin = now_seconds();
    std::optional<std::filesystem::path> folder;
    try {
        folder = work();
    } catch (const comm::AgreedError& error) {
        if (must_succeed || keys_.on_error == config::OnSaveError::kAbort) throw;
        report_.error = error.what();
    }
    if (folder) {
        report_.folder = *folder;
        begin_deletion(*folder);
        if (must_succeed) end_deletion();  // the last report of the run
    }
    const double end = now_seconds();
    report_.stall_s += end - begin;
    if (!folder && report_.error.empty()) return std::nullopt;
    report_.seconds = end - begun_;
    report_.left = std::exchange(left_, {});
    return std::exchange(report_, SaveReport{});
}

std::vector<SaveReport> Checkpoints::save(const checkpoint::Progress& progress, bool last) {
    std::vector<SaveReport> ended;
    if (auto earlier = drain()) ended.push_back(std::move(*earlier));
    checkpoint::Manifest manifest = header_;
    manifest.progress = progress;
    begun_ = now_seconds();
    end_deletion();  // a new save tidies up too: never both at once
    const auto pieces = exclusive_memory();
    report_ = {.step = progress.step, .folder = {}, .bytes = bytes_of(pieces)};
    auto report = step_of_save(last, [&]() -> std::optional<std::filesystem::path> {
        view_.refresh();
        if (!keys_.async || last) return saver_.save(manifest, pieces);
        saver_.start(manifest, pieces);
        return std::nullopt;
    });
    if (report) ended.push_back(std::move(*report));
    return ended;
}

std::optional<SaveReport> Checkpoints::poll() {
    if (!saver_.in_flight()) return std::nullopt;
    return step_of_save(false, [&] { return saver_.poll(); });
}

std::optional<SaveReport> Checkpoints::drain() {
    if (!saver_.in_flight()) return std::nullopt;
    return step_of_save(false, [&] { return std::optional(saver_.wait(keys_.timeout_s)); });
}

void Checkpoints::require_space() const {
    comm::agree(state_.world, [&] {
        if (state_.world.rank() != 0) return;
        checkpoint::require_space(parent_, checkpoint_bytes(state_.layout));
    });
}

std::vector<std::string> Checkpoints::restore(const checkpoint::Chosen& chosen) {
    begin_update_of_all(state_.store, state_.layout);
    view_.refresh();
    auto left_out = checkpoint::load(state_.world, chosen, named_shapes(state_.layout),
                                     memory_of(owned_pieces(state_.layout, state_.store)),
                                     {.verify = keys_.verify_load,
                                      .strict = keys_.load_strict,
                                      .moments = keys_.load_optimizer});
    view_.put_back();
    publish_all(state_.store, state_.layout);
    state_.optimizer.restore_step_count(
        keys_.load_optimizer ? chosen.manifest.progress.optimizer_step : 0);
    return left_out;
}

std::int64_t Checkpoints::planned_staging_bytes() const {
    if (!keys_.async) return 0;
    const auto parameters = named_shapes(state_.layout);
    std::int64_t elements = 0;
    for (const OwnedPiece& place : exclusive_pieces(state_.layout, state_.store, state_.replicas)) {
        elements += saved_elements(place, parameters);
    }
    return elements * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace fullshard::train
