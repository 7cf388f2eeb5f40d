// All ranks write one checkpoint together.
#pragma once

#include "checkpoint/format/manifest.h"
#include "checkpoint/parallel/piece.h"
#include "comm/group.h"

#include <filesystem>
#include <span>

namespace fullshard::checkpoint {

/// Writes `parent/step-N`, N being `header.progress.step`: the weights of each parameter, and the
/// moments of trainable ones, in their full shapes. The pieces of all ranks together must cover
/// every element of them once. Rank 0 lays the file out, all ranks write their pieces independently
/// through MPI-IO, everything is synced, then rank 0 commits: until that instant the folder has a
/// temporary name that no reader takes. `header`'s file size, digests and tensors are filled in
/// here.
///
/// Returns the committed folder. An error of any rank (disk full, permissions, a bad piece) is
/// thrown as the same AgreedError on all of them; earlier checkpoints are untouched. Collective.
std::filesystem::path save(const comm::Group& world, const std::filesystem::path& parent,
                           const Manifest& header, std::span<const NamedShape> parameters,
                           std::span<const Piece> pieces);

}  // namespace fullshard::checkpoint
