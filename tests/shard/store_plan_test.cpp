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

using fullshard::testing::toy_model;
using fullshard::testing::ToySharding;
using fullshard::testing::ToyTraining;
using fullshard::testing::world;

/// Everything that changes bytes: strategies and groups on nodes of any kind, types, orders.
std::vector<ToySharding> planned_cases(int ranks) {
    std::vector<ToySharding> list;
    for (const Strategy& strategy : strategies()) {
        for (int group = 0; group <= ranks; ++group) {
            if (group > 0 && (ranks % group != 0 || strategy.keeps_everything())) continue;
            for (const int ranks_per_node : {0, 1, 2}) {
                if (ranks_per_node == 2 && ranks % 2 != 0) continue;
                for (const bool node_shared : {true, false}) {
                    for (const StorePreference store :
                         {StorePreference::kAuto, StorePreference::kSlotted}) {
                        list.push_back({.strategy = std::string(strategy.name),
                                        .group_size = group,
                                        .store = store,
                                        .ranks_per_node = ranks_per_node,
                                        .node_shared = node_shared});
                    }
                }
            }
        }
    }
    const auto vary = [&](auto change) {
        for (const bool node_shared : {true, false}) {
            for (const StorePreference store :
                 {StorePreference::kAuto, StorePreference::kSlotted}) {
                for (const char* strategy : {"no_shard", "zero1", "full_shard", "hybrid_shard"}) {
                    ToySharding sharding{.strategy = strategy,
                                         .store = store,
                                         .ranks_per_node = ranks % 2 == 0 ? ranks / 2 : 0,
                                         .node_shared = node_shared};
                    change(sharding);
                    list.push_back(sharding);
                }
            }
        }
    };
    using enum DType;
    vary([](ToySharding& s) { s.compute = kBFloat16; });
    vary([](ToySharding& s) { s.reduce = kBFloat16; });
    vary([](ToySharding& s) { s.compute = s.reduce = kFloat16; });
    vary([](ToySharding& s) { s.order = SumOrder::kFast; });
    vary([](ToySharding& s) {
        s.order = SumOrder::kFast;
        s.accumulation = Accumulation::kUnsharded;
        s.compute = kBFloat16;
    });
    vary([](ToySharding& s) { s.slots = 3; });
    vary([](ToySharding& s) { s.wrap = {WrapPolicy::kModel}; });
    vary([](ToySharding& s) { s.wrap = {WrapPolicy::kSize, 500}; });
    for (int smaller = 2; smaller < ranks; ++smaller) {
        if (ranks % smaller != 0) continue;
        for (const int ranks_per_node : {0, 1, 2}) {
            for (const bool node_shared : {true, false}) {
                for (const StorePreference store :
                     {StorePreference::kAuto, StorePreference::kSlotted}) {
                    list.push_back({.store = store,
                                    .ranks_per_node = ranks_per_node,
                                    .node_shared = node_shared,
                                    .regather_ranks = smaller});
                }
            }
        }
    }
    return list;
}

TEST(Plan, MemoryEqualsWhatIsAllocated) {
    for (const ToySharding& sharding : planned_cases(world().size())) {
        for (const std::int64_t micro_batches : {1, 5}) {
            ToyTraining toy(world(), sharding, micro_batches);
            EXPECT_EQ(
                toy.store().allocations(),
                plan_memory(toy.kind(), toy.layout(), toy.schedule(), toy.place(), toy.options()))
                << sharding.describe();
        }
    }
}

TEST(Plan, TrafficEqualsWhatIsCounted) {
    for (const ToySharding& sharding : planned_cases(world().size())) {
        ToyTraining toy(world(), sharding, 3);
        const auto planned = [&](const Work& work) {
            return plan_traffic(toy.kind(), toy.layout(), toy.schedule(), toy.place(),
                                toy.options(), work);
        };
        // The evaluation before the first step shares the parameters with it, the one behind the
        // last step sees new ones.
        toy.evaluate(2);
        toy.run(0, 2);
        toy.evaluate(1);
        EXPECT_EQ(toy.store().traffic(), planned({.steps = 2, .evaluations = 3, .versions = 3}))
            << sharding.describe();
    }
}

Traffic step_traffic(StoreKind kind, const Layout& layout, const Place& place,
                     const StoreOptions& options) {
    return plan_traffic(kind, layout, make_schedule(layout, options.residency), place, options,
                        {.steps = 1});
}

// The published count for ZeRO-3, two gathers and one reduction of M (W-1)/W per micro-batch and
// rank, less the last segment's units, which are gathered once for both passes.
TEST(Plan, FullShardMovesThreeTimesTheModelPerMicroBatch) {
    spec::ModelSpec model = toy_model();
    for (auto& stage : model.stages) {
        for (auto& parameter : stage.parameters) parameter.trainable = true;
    }
    const Layout layout = make_layout(model, 4);
    const std::int64_t model_bytes = 4 * layout.padded();
    std::int64_t last_bytes = 0;
    for (const std::int64_t unit : layout.units_of_segment(layout.segments.size() - 1)) {
        last_bytes += 4 * layout.units[static_cast<std::size_t>(unit)].padded();
    }
    const std::int64_t gathered = 2 * model_bytes - last_bytes;
    for (const StoreKind kind : {StoreKind::kResident, StoreKind::kSlotted}) {
        const Place place = kind == StoreKind::kResident ? Place{1, 4, 0, 1} : Place{1, 2, 1, 2};
        const Traffic traffic = step_traffic(kind, layout, place, {.micro_batches = 5});
        EXPECT_EQ(traffic.gathered, 5 * gathered * 3 / 4);
        EXPECT_EQ(traffic.reduced, 5 * model_bytes * 3 / 4);
        // Per node of two ranks, (N-1)/N = 1/2 of what is gathered and reduced.
        EXPECT_EQ(2 * traffic.lane_received,
                  kind == StoreKind::kResident ? 0 : 5 * (gathered + model_bytes) / 2);
        EXPECT_EQ(traffic.node_local_read,
                  5 * model_bytes * (place.node_size - 1) / place.node_size);
    }
}

// ZeRO-2 gathers once a step (Rajbhandari et al., section 7: the same volume as data parallelism).
TEST(Plan, ShardGradOpGathersOnceAStep) {
    const Layout layout = make_layout(toy_model(), 4);
    const Traffic traffic =
        step_traffic(StoreKind::kSlotted, layout, {0, 1, 1, 4},
                     {.residency = Residency::kUntilUpdate, .micro_batches = 5});
    EXPECT_EQ(traffic.gathered, 4 * layout.padded() * 3 / 4);
}

// Hybrid: gathers stay within the group; a shard crosses between replicas as an all-reduce.
TEST(Plan, HybridAllReducesShardsOverReplicasPerMicroBatchOrOnceAStep) {
    const Layout layout = make_layout(toy_model(), 2);
    std::int64_t learning = 0;
    for (const Unit& unit : layout.units) learning += unit.trainable() ? 4 * unit.padded() : 0;
    const Place place{0, 2, 0, 1, 0, 4};
    for (const SumOrder order : {SumOrder::kTree, SumOrder::kFast}) {
        const Traffic traffic =
            step_traffic(StoreKind::kResident, layout, place, {.micro_batches = 5, .order = order});
        const std::int64_t all_reduces = order == SumOrder::kTree ? 5 : 1;
        EXPECT_EQ(traffic.reduced, 5 * learning / 2 + all_reduces * 2 * (learning / 2) * 3 / 4);
    }
}

TEST(Plan, UnshardedParametersExistOncePerNode) {
    const Layout layout = make_layout(toy_model(), 4);
    const Place place{0, 4, 0, 1};
    std::int64_t per_node = 0, private_parameters = 0;
    for (const Allocation& a :
         plan_memory(StoreKind::kResident, layout, make_schedule(layout), place, {})) {
        if (a.purpose.find("parameters") == std::string::npos) continue;
        (a.node_shared ? per_node : private_parameters) += a.bytes;
    }
    EXPECT_EQ(per_node, 4 * layout.padded());
    EXPECT_EQ(private_parameters, 0);
}

TEST(Plan, ResidentStoreCopiesNothing) {
    const Layout layout = make_layout(toy_model(), 4);
    EXPECT_EQ(step_traffic(StoreKind::kResident, layout, {0, 4, 0, 1}, {.micro_batches = 7}).copied,
              0);
    const Layout alone = make_layout(toy_model(), 1);
    EXPECT_EQ(step_traffic(StoreKind::kResident, alone, {}, {.micro_batches = 7}).copied, 0);
}

// TransformerEngine 2918, DeepSpeed 7639: sizes beyond 2^31 elements.
TEST(Plan, BillionsOfElementsNeed64Bits) {
    spec::ModelSpec model{"huge", {}};
    spec::ParameterSpec p;
    p.name = "p";
    p.shape = {3'000'000'000};
    model.stages.push_back({"s", {p}});
    const Layout layout = make_layout(model, 4);
    EXPECT_EQ(layout.numel(), 3'000'000'000);
    const Traffic traffic = step_traffic(StoreKind::kSlotted, layout, {0, 1, 0, 4}, {});
    EXPECT_EQ(traffic.gathered, 4 * layout.padded() * 3 / 4);
    EXPECT_GT(traffic.gathered, std::int64_t{3'000'000'000} * 2);
}

}  // namespace
}  // namespace fullshard::shard
