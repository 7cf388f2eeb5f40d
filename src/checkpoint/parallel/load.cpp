#include "checkpoint/parallel/load.h"

#include "checkpoint/format/fit.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/reader.h"
#include "comm/agree.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace fullshard::checkpoint {

namespace fs = std::filesystem;

namespace {

/// Rank 0's choice for everybody; empty text stands for none. The manifest travels as its text.
std::optional<Chosen> share(const comm::Group& world, const std::optional<Chosen>& choice) {
    const fs::path folder = world.broadcast(choice ? choice->folder.string() : "", 0);
    const std::string text = world.broadcast(choice ? to_json(choice->manifest) : "", 0);
    if (folder.empty()) return std::nullopt;
    return Chosen{folder, parse_manifest(text, folder.string())};
}

/// Which pieces a checkpoint can fill.
class Fitting {
  public:
    Fitting(const Manifest& manifest, std::span<const NamedShape> parameters)
        : parameters_(parameters) {
        for (const TensorEntry& tensor : manifest.tensors) {
            shapes_.emplace(std::pair(tensor.state, std::string_view(tensor.parameter)),
                            std::span(tensor.shape));
        }
    }
    /// Moments are filled together or not at all.
    bool operator()(const Piece& piece) const {
        const NamedShape& parameter = parameters_[piece.parameter];
        if (piece.state == State::kModel) return fits(State::kModel, parameter);
        return std::ranges::all_of(kStates, [&](State state) { return fits(state, parameter); });
    }

  private:
    bool fits(State state, const NamedShape& parameter) const {
        const auto found = shapes_.find({state, std::string_view(parameter.parameter)});
        return found != shapes_.end() && std::ranges::equal(found->second, parameter.shape);
    }
    std::span<const NamedShape> parameters_;
    std::map<std::pair<State, std::string_view>, std::span<const std::int64_t>> shapes_;
};

}  // namespace

std::optional<Chosen> choose_latest(const comm::Group& world, const fs::path& parent,
                                    std::vector<std::string>& skipped) {
    std::optional<Chosen> choice;
    comm::agree(world, [&] {
        if (world.rank() != 0) return;
        Latest latest = find_latest(parent);
        skipped = std::move(latest.skipped);
        if (latest.folder) choice = Chosen{*latest.folder, open_folder(*latest.folder)};
    });
    return share(world, choice);
}

Chosen choose(const comm::Group& world, const fs::path& path) {
    std::optional<Chosen> choice;
    comm::agree(world, [&] {
        if (world.rank() != 0) return;
        const fs::path folder = locate_checkpoint(path).folder.value();
        choice = Chosen{folder, open_folder(folder)};
    });
    return *share(world, choice);
}

std::vector<std::string> load(const comm::Group& world, const Chosen& checkpoint,
                              std::span<const NamedShape> parameters, std::span<const Piece> pieces,
                              const LoadOptions& options) {
    const Manifest& manifest = checkpoint.manifest;
    const bool moments = options.moments && has_moments(manifest);
    std::vector<std::string> left_out;
    comm::agree(world, [&] {
        if (options.strict) {
            check_state(manifest, parameters, checkpoint.folder.string(), moments);
        } else {
            left_out = differences(manifest, parameters, moments);
        }
        const Fitting fitting(manifest, parameters);
        CheckpointReader reader(checkpoint.folder, manifest, options.verify);
        for (const Piece& piece : pieces) {
            if (piece.state != State::kModel && !moments) continue;
            if (!fitting(piece)) continue;
            reader.read(piece.state, parameters[piece.parameter].parameter, piece.begin,
                        piece.values);
        }
    });
    return left_out;
}

}  // namespace fullshard::checkpoint
