// How a rank names the parts of tensors that it holds, and the ranks it shares a file with.
#pragma once

#include "checkpoint/format/fit.h"
#include "checkpoint/format/manifest.h"
#include "comm/group.h"

#include <cstdint>
#include <span>

namespace fullshard::checkpoint {

/// Part of a tensor in this rank's memory: elements from `begin` on, row-major.
struct Piece {
    State state = State::kModel;
    std::size_t parameter = 0;  ///< index in a list of NamedShapes
    std::int64_t begin = 0;
    std::span<float> values;  ///< read by a save, filled by a load
};

/// Who saves together. Rank 0 of `sharing` lays the file out.
struct SavingRanks {
    comm::Group world;
    comm::Group sharing;    ///< the ranks that write to this rank's file
    std::int64_t file = 0;  ///< number of that file
    std::int64_t files = 1;
};

}  // namespace fullshard::checkpoint
