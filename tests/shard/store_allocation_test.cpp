#include "shard/toy_training.h"
#include "support/allocation_counter.h"
#include "support/mpi_world.h"

#include <gtest/gtest.h>

namespace fullshard::shard {
namespace {

using fullshard::testing::ToySharding;
using fullshard::testing::ToyTraining;
using fullshard::testing::world;

/// One step of the store's calls and nothing else.
void run_step(ToyTraining& toy) {
    UnitStore& store = toy.store();
    for (std::int64_t a = 0; a < toy.options().micro_batches; ++a) {
        for (const auto* pass : {&toy.schedule().forward, &toy.schedule().backward}) {
            for (const Visit& visit : *pass) {
                constexpr std::size_t kMostUses = 4;
                std::array<Lease, kMostUses> leases;
                std::size_t next = 0;
                for (const UnitUse& use : visit.uses) leases.at(next++) = store.unshard(use);
                for (const std::int64_t unit : visit.prefetch) store.prefetch(unit);
                for (const std::int64_t unit : visit.first_gradients) store.begin_gradients(unit);
                for (Lease& lease : leases) lease.release();
                for (const std::int64_t unit : visit.reductions) store.reduce(unit);
            }
        }
    }
    store.finish_reductions();
    for (std::size_t u = 0; u < toy.layout().units.size(); ++u) {
        store.begin_update(static_cast<std::int64_t>(u));
        store.publish(static_cast<std::int64_t>(u));
    }
}

TEST(Stores, DoNotAllocateInASteadyStep) {
    for (const Strategy& strategy : strategies()) {
        for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
            for (const bool node_shared : {true, false}) {
                for (const SumOrder order : {SumOrder::kTree, SumOrder::kFast}) {
                    const ToySharding sharding{.strategy = std::string(strategy.name),
                                               .ranks_per_node = world().size() == 4 ? 2 : 0,
                                               .node_shared = node_shared,
                                               .compute = compute,
                                               .order = order};
                    ToyTraining toy(world(), sharding, 2);
                    // The first steps grow the request lists of the communicators.
                    for (int step = 0; step < 3; ++step) run_step(toy);
                    const std::int64_t before = allocation_count();
                    for (int step = 0; step < 3; ++step) run_step(toy);
                    EXPECT_EQ(allocation_count() - before, 0) << sharding.describe();
                }
            }
        }
    }
}

}  // namespace
}  // namespace fullshard::shard
