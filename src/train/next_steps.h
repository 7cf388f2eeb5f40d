// What a user does after a run has ended, as commands to copy.
#pragma once

#include "config/deck.h"
#include "train/launch_info.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::train {

struct EndOfRun {
    bool stopped_early = false;  ///< behind a checkpoint of `step`
    std::int64_t step = 0;
    bool saved = false;      ///< the run folder holds a checkpoint of `step`
    bool evaluates = false;  ///< there are held-out data
};

/// Lines such as "next: the same command goes on from step 60: mpirun -n 2 ...".
std::vector<std::string> next_steps(const EndOfRun& end, const config::Deck& deck,
                                    const LaunchInfo& launch, int ranks);

}  // namespace fullshard::train
