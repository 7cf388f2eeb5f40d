#include "comm/clock_offsets.h"

#include "base/clock.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

namespace fullshard::comm {
namespace {

using fullshard::testing::world;

TEST(ClockOffsets, AClockThatIsAheadOrBehindShows) {
    const int me = world().rank();
    const auto clock = [&] { return 1000.0 + now_seconds() + 5.0 * me * (me % 2 == 0 ? -1 : 1); };
    const auto offsets = clock_offsets(world(), 10, clock);
    ASSERT_EQ(static_cast<int>(offsets.size()), world().size());
    for (int rank = 0; rank < world().size(); ++rank) {
        const auto& found = offsets[static_cast<std::size_t>(rank)];
        EXPECT_NEAR(found.offset_s, 5.0 * rank * (rank % 2 == 0 ? -1 : 1),
                    found.round_trip_s / 2 + 1e-6);
        EXPECT_LT(found.round_trip_s, 1.0);
    }
}

}  // namespace
}  // namespace fullshard::comm
