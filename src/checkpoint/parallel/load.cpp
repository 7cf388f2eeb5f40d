#include "checkpoint/parallel/load.h"

#include "base/error.h"
#include "checkpoint/format/folder.h"
#include "checkpoint/format/reader.h"
#include "comm/agree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string_view>

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

namespace {

/// What is wrong with a file's parameters, in the order of the model and then of the file.
std::vector<std::string> mismatches(
    std::map<std::string_view, std::span<const std::int64_t>> in_file,
    std::span<const NamedShape> expected) {
    std::vector<std::string> list;
    for (const NamedShape& parameter : expected) {
        const auto found = in_file.find(parameter.parameter);
        if (found == in_file.end()) {
            list.push_back(fmt::format("{} is missing", parameter.parameter));
            continue;
        }
        if (!std::ranges::equal(found->second, parameter.shape)) {
            list.push_back(fmt::format("{} has shape {} instead of {}", parameter.parameter,
                                       found->second, parameter.shape));
        }
        in_file.erase(found);
    }
    for (const auto& [name, shape] : in_file)
        list.push_back(fmt::format("{} is not in the model", name));
    return list;
}

void refuse(const std::vector<std::string>& mismatches, std::string_view origin) {
    if (mismatches.empty()) return;
    throw DataError(
        fmt::format("{} does not fit the model: {}", origin, fmt::join(mismatches, "; ")));
}

}  // namespace

void check_parameters(const WeightsSource& source, std::span<const NamedShape> expected,
                      std::string_view origin) {
    std::map<std::string_view, std::span<const std::int64_t>> in_file;
    for (const auto& tensor : source.tensors()) in_file.emplace(tensor.name, tensor.shape);
    refuse(mismatches(std::move(in_file), expected), origin);
}

void load(const comm::Group& world, const Chosen& checkpoint,
          std::span<const NamedShape> parameters, std::span<const Piece> pieces) {
    comm::agree(world, [&] {
        for (const State state : kStates) {
            std::map<std::string_view, std::span<const std::int64_t>> in_file;
            for (const TensorEntry& entry : checkpoint.manifest.tensors) {
                if (entry.state == state) in_file.emplace(entry.parameter, entry.shape);
            }
            refuse(mismatches(std::move(in_file), parameters), checkpoint.folder.string());
        }
        CheckpointReader reader(checkpoint.folder, checkpoint.manifest);
        for (const Piece& piece : pieces) {
            reader.read(piece.state, parameters[piece.parameter].parameter, piece.begin,
                        piece.values);
        }
    });
}

}  // namespace fullshard::checkpoint
