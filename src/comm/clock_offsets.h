// How far the clocks of ranks are apart, by messages there and back.
#pragma once

#include "comm/group.h"

#include <functional>
#include <vector>

namespace fullshard::comm {

struct ClockOffset {
    double offset_s = 0.0;      ///< the rank's clock minus rank 0's
    double round_trip_s = 0.0;  ///< of the fastest message there and back: twice the offset's error
};

/// Offsets of all ranks of the group from rank 0, which asks one after another `trips` times and
/// believes the fastest answer (as NTP does). `clock` gives seconds since the epoch. Collective.
std::vector<ClockOffset> clock_offsets(const Group& group, int trips,
                                       const std::function<double()>& clock);

}  // namespace fullshard::comm
