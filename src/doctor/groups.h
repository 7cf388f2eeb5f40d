// The groups in which a run exchanges data.
#pragma once

#include "comm/group.h"
#include "doctor/checks.h"

#include <string>
#include <vector>

namespace fullshard::doctor {

struct NamedGroup {
    std::string name;
    comm::Group group;
};

/// The world; the ranks of each node, where that is another group; and each lane between nodes,
/// where a run would use them. Every rank gets one group of each kind. Collective over the world.
std::vector<NamedGroup> groups_of(const Subject& subject);

}  // namespace fullshard::doctor
