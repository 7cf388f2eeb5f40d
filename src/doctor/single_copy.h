// Whether ranks of a node may read each other's memory, as MPI does for large messages.
#pragma once

#include "doctor/finding.h"

#include <cstdint>

namespace fullshard::doctor {

inline constexpr std::int64_t kTransferBytes = std::int64_t{64} << 20;

/// What a rank finds when a neighbour sends it kTransferBytes.
struct Transfer {
    int refused = 0;       ///< errno of reading the neighbour's memory directly
    double seconds = 0.0;  ///< 0 where no node has two ranks
};

/// `switched_off` where the user has told MPI not to read other ranks' memory.
Finding grade(const Transfer& worst, bool switched_off);

}  // namespace fullshard::doctor
