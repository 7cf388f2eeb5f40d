#include "checkpoint/parallel/load.h"

#include "checkpoint/format/fit.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/reader.h"
#include "comm/agree.h"

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

void load(const comm::Group& world, const Chosen& checkpoint,
          std::span<const NamedShape> parameters, std::span<const Piece> pieces) {
    comm::agree(world, [&] {
        check_state(checkpoint.manifest, parameters, checkpoint.folder.string());
        CheckpointReader reader(checkpoint.folder, checkpoint.manifest);
        for (const Piece& piece : pieces) {
            reader.read(piece.state, parameters[piece.parameter].parameter, piece.begin,
                        piece.values);
        }
    });
}

}  // namespace fullshard::checkpoint
