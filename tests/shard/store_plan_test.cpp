#include "shard/plan.h"
#include "shard/toy_training.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

namespace fullshard::shard {

void PrintTo(const Allocation& a, std::ostream* out) {
    *out << a.purpose << ": " << a.bytes << (a.node_shared ? " shared" : "");
}
void PrintTo(const Traffic& t, std::ostream* out) {
    *out << "gathered " << t.gathered << ", reduced " << t.reduced << ", node-local "
         << t.node_local_read << ", lane " << t.lane_received << ", copied " << t.copied;
}

namespace {

using fullshard::testing::make_toy_world;
using fullshard::testing::toy_model;
using fullshard::testing::ToyWorld;
using fullshard::testing::world;

struct PlannedCase {
    StoreKind kind;
    int ranks_per_node;
    bool node_shared;
};

const std::vector<PlannedCase> kCases{
    {StoreKind::kPrivate, 0, true}, {StoreKind::kResident, 0, true},
    {StoreKind::kSlotted, 0, true}, {StoreKind::kSlotted, 0, false},
    {StoreKind::kSlotted, 1, true}, {StoreKind::kSlotted, 2, true}};

TEST(Plan, MemoryEqualsWhatIsAllocated) {
    for (const PlannedCase& c : kCases) {
        for (const std::int64_t micro_batches : {1, 5}) {
            const ToyWorld toy = make_toy_world(world(), c.ranks_per_node, c.node_shared);
            const Layout layout =
                make_block_layout(toy_model(), c.kind == StoreKind::kPrivate ? 1 : world().size());
            const StoreOptions options{
                .parameter_slots = 3, .gradient_slots = 2, .micro_batches = micro_batches};
            const auto store = make_store(c.kind, layout, toy.topology.world, toy.lanes, options);
            const Place place = c.kind == StoreKind::kPrivate
                                    ? Place{0, 1, world().rank(), world().size()}
                                    : place_of(toy.lanes);
            EXPECT_EQ(store->allocations(), plan_memory(c.kind, layout, place, options));
            toy.topology.world.barrier();
        }
    }
}

TEST(Plan, TrafficEqualsWhatIsCounted) {
    for (const PlannedCase& c : kCases) {
        const std::int64_t micro_batches = 3;
        const ToyWorld toy = make_toy_world(world(), c.ranks_per_node, c.node_shared);
        const Layout layout =
            make_block_layout(toy_model(), c.kind == StoreKind::kPrivate ? 1 : world().size());
        const auto store = make_store(c.kind, layout, toy.topology.world, toy.lanes,
                                      {.micro_batches = micro_batches});
        const Place place = c.kind == StoreKind::kPrivate
                                ? Place{0, 1, world().rank(), world().size()}
                                : place_of(toy.lanes);
        for (int step = 0; step < 2; ++step) {
            const Traffic before = store->traffic();
            fullshard::testing::run_toy_training(*store, layout, toy.topology.world, 1,
                                                 micro_batches);
            EXPECT_EQ(store->traffic() - before,
                      plan_traffic(c.kind, layout, make_schedule(layout), place, micro_batches, 0));
        }
        toy.topology.world.barrier();
    }
}

// The published count for ZeRO-3: two gathers and one reduction of M (W-1)/W per micro-batch and
// rank.
TEST(Plan, FullShardMovesThreeTimesTheModelPerMicroBatch) {
    const Layout layout = make_block_layout(toy_model(), 4);
    const std::int64_t model_bytes = 4 * layout.padded();
    for (const StoreKind kind : {StoreKind::kResident, StoreKind::kSlotted}) {
        const Place place = kind == StoreKind::kResident ? Place{1, 4, 0, 1} : Place{1, 2, 1, 2};
        const Traffic traffic = plan_traffic(kind, layout, make_schedule(layout), place, 5, 0);
        EXPECT_EQ(traffic.gathered, 5 * 2 * model_bytes * 3 / 4);
        EXPECT_EQ(traffic.reduced, 5 * model_bytes * 3 / 4);
        // Per node of two ranks, (N-1)/N M = M/2 for each of the three.
        EXPECT_EQ(2 * traffic.lane_received,
                  kind == StoreKind::kResident ? 0 : 5 * 3 * model_bytes / 2);
        EXPECT_EQ(traffic.node_local_read,
                  5 * model_bytes * (place.node_size - 1) / place.node_size);
    }
}

TEST(Plan, UnshardedParametersExistOncePerNode) {
    const Layout layout = make_block_layout(toy_model(), 4);
    const Place place{0, 4, 0, 1};
    std::int64_t per_node = 0, private_parameters = 0;
    for (const Allocation& a : plan_memory(StoreKind::kResident, layout, place, {})) {
        if (a.purpose.find("parameters") == std::string::npos) continue;
        (a.node_shared ? per_node : private_parameters) += a.bytes;
    }
    EXPECT_EQ(per_node, 4 * layout.padded());
    EXPECT_EQ(private_parameters, 0);
}

TEST(Plan, ResidentStoreCopiesNothing) {
    const Layout layout = make_block_layout(toy_model(), 4);
    EXPECT_EQ(plan_traffic(StoreKind::kResident, layout, make_schedule(layout), {0, 4, 0, 1}, 7, 3)
                  .copied,
              0);
}

}  // namespace
}  // namespace fullshard::shard
