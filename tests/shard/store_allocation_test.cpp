#include "shard/initialize.h"
#include "shard/toy_training.h"
#include "support/allocation_counter.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

namespace fullshard::shard {
namespace {

using fullshard::testing::make_toy_world;
using fullshard::testing::world;

/// One step of the store's calls and nothing else.
void run_step(UnitStore& store, const Layout& layout, const Schedule& schedule,
              std::int64_t micro_batches) {
    for (std::int64_t a = 0; a < micro_batches; ++a) {
        for (const Visit& visit : schedule.forward) {
            const Lease lease = store.unshard(visit.unit);
            if (visit.prefetch != Visit::kNone) store.prefetch(visit.prefetch);
        }
        for (const Visit& visit : schedule.backward) {
            Lease lease = store.unshard(visit.unit);
            if (visit.prefetch != Visit::kNone) store.prefetch(visit.prefetch);
            store.begin_gradients(visit.unit);
            store.grad_sink(visit.unit).open(0);
            lease.release();
            store.reduce(visit.unit);
        }
    }
    store.finish_reductions();
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
        store.begin_update(static_cast<std::int64_t>(u));
        store.publish(static_cast<std::int64_t>(u));
    }
}

TEST(Stores, DoNotAllocateInASteadyStep) {
    struct Config {
        StoreKind kind;
        int ranks_per_node;
        bool node_shared;
    };
    for (const Config c :
         {Config{StoreKind::kPrivate, 0, true}, Config{StoreKind::kResident, 0, true},
          Config{StoreKind::kSlotted, 0, true}, Config{StoreKind::kSlotted, 0, false},
          Config{StoreKind::kSlotted, 2, true}}) {
        const auto toy = make_toy_world(world(), c.ranks_per_node, c.node_shared);
        const Layout layout = make_block_layout(fullshard::testing::toy_model(),
                                                c.kind == StoreKind::kPrivate ? 1 : world().size());
        const Schedule schedule = make_schedule(layout);
        const auto store =
            make_store(c.kind, layout, toy.topology.world, toy.lanes, {.micro_batches = 2});
        initialize_parameters(*store, layout, 1);
        // The first steps grow the request lists of the communicator.
        for (int step = 0; step < 3; ++step) run_step(*store, layout, schedule, 2);
        const std::int64_t before = allocation_count();
        for (int step = 0; step < 3; ++step) run_step(*store, layout, schedule, 2);
        EXPECT_EQ(allocation_count() - before, 0);
        toy.topology.world.barrier();
    }
}

}  // namespace
}  // namespace fullshard::shard
