#include "shard/schedule.h"

#include <gtest/gtest.h>

namespace fullshard::shard {
namespace {

Layout three_units(bool first_trainable = true) {
    Layout layout{2, {}};
    for (int i = 0; i < 3; ++i) {
        spec::ParameterSpec p;
        p.name = "p" + std::to_string(i);
        p.shape = {10};
        p.trainable = i > 0 || first_trainable;
        layout.units.emplace_back("u" + std::to_string(i), std::vector{static_cast<std::size_t>(i)},
                                  std::vector{p}, 2);
    }
    return layout;
}

std::vector<std::int64_t> units_of(const std::vector<Visit>& visits) {
    std::vector<std::int64_t> units;
    for (const Visit& visit : visits) units.push_back(visit.unit);
    return units;
}

TEST(Schedule, ForwardInOrderBackwardInReverseEachPrefetchingTheNext) {
    const Schedule schedule = make_schedule(three_units());
    EXPECT_EQ(units_of(schedule.forward), (std::vector<std::int64_t>{0, 1, 2}));
    EXPECT_EQ(units_of(schedule.backward), (std::vector<std::int64_t>{2, 1, 0}));
    EXPECT_EQ(schedule.forward[0].prefetch, 1);
    EXPECT_EQ(schedule.forward[2].prefetch, Visit::kNone);
    EXPECT_EQ(schedule.backward[0].prefetch, 1);
    EXPECT_EQ(schedule.unshards(1), 2);
}

TEST(Schedule, BackwardStopsAtTheFirstTrainableUnit) {
    const Schedule schedule = make_schedule(three_units(false));
    EXPECT_EQ(units_of(schedule.backward), (std::vector<std::int64_t>{2, 1}));
    EXPECT_EQ(schedule.backward.back().prefetch, Visit::kNone);
}

TEST(Schedule, HashTellsSchedulesAndLayoutsApart) {
    const Layout a = three_units(), b = three_units(false);
    EXPECT_EQ(make_schedule(a).hash(a), make_schedule(a).hash(a));
    EXPECT_NE(make_schedule(a).hash(a), make_schedule(b).hash(b));
}

}  // namespace
}  // namespace fullshard::shard
