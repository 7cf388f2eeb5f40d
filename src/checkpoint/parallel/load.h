// Each rank reads its own ranges of a checkpoint.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/parallel/piece.h"
#include "comm/group.h"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// A checkpoint that one rank chose and checked, known to all.
struct Chosen {
    std::filesystem::path folder;
    Manifest manifest;
};

/// The newest whole checkpoint below `parent`; rank 0 looks, so that all ranks see the same.
/// `skipped` receives why newer ones were passed over. Collective.
std::optional<Chosen> choose_latest(const comm::Group& world, const std::filesystem::path& parent,
                                    std::vector<std::string>& skipped);

/// The checkpoint at `path`: its folder, or a folder of checkpoints or run that has some, of which
/// the newest whole one is taken. Throws AgreedError naming what is wrong. Collective.
Chosen choose(const comm::Group& world, const std::filesystem::path& path);

struct LoadOptions {
    bool verify = true;   ///< digests
    bool strict = true;   ///< what check_state() finds is an error
    bool moments = true;  ///< else pieces of them are left as they are
};

/// Fills the pieces. Nothing but this rank's ranges (rounded to digest blocks) is read. Where it is
/// not strict, pieces of tensors that do not fit are left as they are, and so are the moments of a
/// parameter of which not all fit; returned are sentences about those. Any rank's damage is thrown
/// as the same AgreedError on all. Collective.
std::vector<std::string> load(const comm::Group& world, const Chosen& checkpoint,
                              std::span<const NamedShape> parameters, std::span<const Piece> pieces,
                              const LoadOptions& options = {});

}  // namespace fullshard::checkpoint
