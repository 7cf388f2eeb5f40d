// Nodes, their ranks and the CPUs of those, as people read them.
#pragma once

#include "comm/placement.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace fullshard::train {

/// For example "node 0 (n1): ranks 0-3 on CPUs 0 | 1 | 2 | 3", the CPUs of one rank after the
/// other, or once where all ranks of the node may use the same. Neighbouring nodes with equal ranks
/// and CPUs share a line; what `most_lines` do not hold is counted in the last one. `places` are
/// those of all ranks.
std::vector<std::string> place_map(std::span<const comm::RankPlace> places, std::size_t most_lines);

}  // namespace fullshard::train
