#include "shard/schedule.h"

#include <gtest/gtest.h>

namespace fullshard::shard {
namespace {

using Units = std::vector<std::int64_t>;

spec::ParameterSpec parameter(std::string name, bool trainable = true) {
    spec::ParameterSpec p;
    p.name = std::move(name);
    p.shape = {10};
    p.trainable = trainable;
    return p;
}

spec::ModelSpec three_stages(bool first_trainable = true) {
    return {"m",
            {{"u0", {parameter("p0", first_trainable)}},
             {"u1", {parameter("p1")}},
             {"u2", {parameter("p2")}}}};
}

/// The last stage uses the first one's parameter besides its own.
spec::ModelSpec tied_stages() {
    spec::ModelSpec model = three_stages();
    model.stages[2].parameters.push_back(parameter("tied"));
    model.stages[2].parameters[1].tied_to = "p0";
    return model;
}

std::vector<Units> units_of(const std::vector<Visit>& visits) {
    std::vector<Units> list;
    for (const Visit& visit : visits) {
        list.emplace_back();
        for (const UnitUse& use : visit.uses) list.back().push_back(use.unit);
    }
    return list;
}

TEST(Schedule, ForwardInOrderBackwardInReverseEachPrefetchingTheNext) {
    const Schedule schedule = make_schedule(make_layout(three_stages(), 2));
    EXPECT_EQ(units_of(schedule.forward), (std::vector<Units>{{0}, {1}, {2}}));
    EXPECT_EQ(units_of(schedule.backward), (std::vector<Units>{{2}, {1}, {0}}));
    EXPECT_EQ(units_of(schedule.evaluation), units_of(schedule.forward));
    EXPECT_EQ(schedule.forward[0].prefetch, Units{1});
    EXPECT_EQ(schedule.forward[2].prefetch, Units{});
    EXPECT_EQ(schedule.backward[0].prefetch, Units{1});
    EXPECT_EQ(schedule.backward[1].first_gradients, Units{1});
    EXPECT_EQ(schedule.backward[1].reductions, Units{1});
    EXPECT_EQ(schedule.forward[0].uses[0].after, Reshard::kFully);
    EXPECT_EQ(schedule.forward[1].uses[0].after, Reshard::kFully);
    EXPECT_EQ(schedule.forward[2].uses[0].after, Reshard::kKeep);  // backward starts with it
    for (const auto* pass : {&schedule.backward, &schedule.evaluation}) {
        for (const Visit& visit : *pass) EXPECT_EQ(visit.uses[0].after, Reshard::kFully);
    }
}

TEST(Schedule, BackwardStopsAtTheFirstTrainableStage) {
    const Schedule schedule = make_schedule(make_layout(three_stages(false), 2));
    EXPECT_EQ(units_of(schedule.backward), (std::vector<Units>{{2}, {1}}));
    EXPECT_EQ(schedule.backward.back().prefetch, Units{});
}

TEST(Schedule, ATiedUnitStaysFromItsFirstToItsLastVisitAndReducesOnce) {
    const Layout layout = make_layout(tied_stages(), 2);
    const Schedule schedule = make_schedule(layout);
    EXPECT_EQ(units_of(schedule.forward), (std::vector<Units>{{0}, {1}, {0, 2}}));
    EXPECT_EQ(schedule.forward[0].uses[0].after, Reshard::kKeep);
    EXPECT_EQ(schedule.evaluation[2].uses[0].after, Reshard::kFully);
    EXPECT_EQ(schedule.forward[1].prefetch, Units{2});  // unit 0 is there already
    EXPECT_EQ(schedule.backward[0].uses[0].after, Reshard::kKeep);
    EXPECT_EQ(schedule.backward[0].first_gradients, (Units{0, 2}));
    EXPECT_EQ(schedule.backward[0].reductions, Units{2});
    EXPECT_EQ(schedule.backward[2].first_gradients, Units{});
    EXPECT_EQ(schedule.backward[2].reductions, Units{0});
    EXPECT_EQ(schedule.shared_units(layout), (std::vector<bool>{true, false, false}));
}

TEST(Schedule, PrefetchPoliciesAndDistance) {
    const Layout layout = make_layout(three_stages(), 2);
    const auto with = [&](Prefetch prefetch) {
        return make_schedule(layout, Residency::kWhileUsed, prefetch);
    };
    const Schedule off = with({false, Prefetch::Backward::kOff, 1});
    for (const auto* pass : {&off.forward, &off.backward, &off.evaluation}) {
        for (const Visit& visit : *pass)
            EXPECT_TRUE(visit.prefetch.empty() && visit.prefetch_after.empty());
    }
    const Schedule post = with({false, Prefetch::Backward::kPost, 1});
    EXPECT_EQ(post.backward[0].prefetch, Units{});
    EXPECT_EQ(post.backward[0].prefetch_after, Units{1});
    EXPECT_EQ(post.forward[0].prefetch, Units{});
    const Schedule far = with({true, Prefetch::Backward::kPre, 2});
    EXPECT_EQ(far.forward[0].prefetch, (Units{1, 2}));
    EXPECT_EQ(far.forward[1].prefetch, Units{});
    EXPECT_EQ(far.backward[0].prefetch, (Units{1, 0}));
}

TEST(Schedule, ResidencySaysWhatRemainsAfterAPass) {
    const Layout layout = make_layout(three_stages(), 2);
    for (const auto& [residency, after] : {std::pair{Residency::kUntilUpdate, Reshard::kKeep},
                                           {Residency::kSmallerGroup, Reshard::kToGroup}}) {
        const Schedule schedule = make_schedule(layout, residency);
        for (const auto* pass : {&schedule.forward, &schedule.backward, &schedule.evaluation}) {
            for (const Visit& visit : *pass) {
                const bool kept = pass == &schedule.forward && &visit == &pass->back();
                EXPECT_EQ(visit.uses[0].after, kept ? Reshard::kKeep : after);
            }
        }
    }
}

TEST(Schedule, HashTellsSchedulesAndLayoutsApart) {
    const Layout a = make_layout(three_stages(), 2), b = make_layout(three_stages(false), 2);
    const Layout c = make_layout(three_stages(), 4);
    EXPECT_EQ(make_schedule(a).hash(a), make_schedule(a).hash(a));
    EXPECT_NE(make_schedule(a).hash(a), make_schedule(b).hash(b));
    EXPECT_NE(make_schedule(a).hash(a), make_schedule(c).hash(c));
    EXPECT_NE(make_schedule(a).hash(a), make_schedule(a, Residency::kUntilUpdate).hash(a));
}

}  // namespace
}  // namespace fullshard::shard
