// What MPI tests stand on: the job's ranks, and sub-worlds of the first W of them.
#pragma once

#include "comm/group.h"

namespace fullshard::testing {

/// All ranks of the test job, with a deadline short enough to end a hanging test.
const comm::Group& world();

/// Runs `body` on a group of the first `ranks` ranks; the others wait at the barrier that follows.
/// Collective over world().
template <typename Body>
void on_first_ranks(int ranks, Body&& body) {
    const comm::Group group = world().split(world().rank() < ranks ? 0 : -1, world().rank());
    if (group.size() > 0) body(group);
    world().barrier();
}

}  // namespace fullshard::testing
