// How a rank names the parts of tensors that it holds.
#pragma once

#include "checkpoint/format/fit.h"
#include "checkpoint/format/manifest.h"

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

}  // namespace fullshard::checkpoint
