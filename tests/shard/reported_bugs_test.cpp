// Mistakes that users of other sharded trainers reported, on every strategy: tests/README.md lists
// them. Gradients are written by hand, so that sums have closed forms.
#include "kernels/cast.h"
#include "shard/toy_training.h"
#include "support/mpi_world.h"
#include "support/store_reading.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::shard {
namespace {

using fullshard::testing::on_first_ranks;
using fullshard::testing::read_gradients;
using fullshard::testing::same_bits;
using fullshard::testing::toy_model;
using fullshard::testing::ToySharding;
using fullshard::testing::ToyTraining;
using fullshard::testing::train_toy;
using fullshard::testing::train_toy_serially;
using fullshard::testing::world;

/// Every strategy and group size, in memory that a node shares and in each rank's own.
std::vector<ToySharding> placements(int ranks) {
    std::vector<ToySharding> list;
    for (const Strategy& strategy : strategies()) {
        for (int group = 1; group <= ranks; ++group) {
            if (ranks % group != 0 || (strategy.keeps_everything() && group > 1)) continue;
            list.push_back({.strategy = std::string(strategy.name), .group_size = group});
            list.push_back(list.back());
            list.back().node_shared = false;
        }
    }
    return list;
}

/// The same with every way to add up micro-batches, and memory poisoned between its uses.
std::vector<ToySharding> accumulating_placements(DType compute) {
    std::vector<ToySharding> list;
    for (ToySharding sharding : placements(world().size())) {
        sharding.compute = compute;
        sharding.faults.poison = true;
        for (const auto& [order, accumulation] :
             {std::pair{SumOrder::kTree, Accumulation::kSharded},
              {SumOrder::kFast, Accumulation::kSharded},
              {SumOrder::kFast, Accumulation::kUnsharded}}) {
            sharding.order = order;
            sharding.accumulation = accumulation;
            list.push_back(sharding);
        }
    }
    return list;
}

spec::ParameterSpec parameter(std::string name, std::vector<std::int64_t> shape) {
    spec::ParameterSpec p;
    p.name = std::move(name);
    p.shape = std::move(shape);
    p.init = {spec::InitRule::Kind::kUniform, 1.0};
    return p;
}

/// Two units: the first has two parameters, the second one another.
spec::ModelSpec three_parameters() {
    return {"toy",
            {{"first", {parameter("a", {70}), parameter("b", {5, 3})}},
             {"second", {parameter("c", {33})}}}};
}

/// Every element of a parameter's gradient in this rank's micro-batch `a`; none where the rank does
/// not use the parameter then.
using Gradient = std::function<std::optional<float>(const std::string& parameter, std::int64_t a)>;

void write_gradients(ToyTraining& toy, std::size_t stage, std::int64_t a,
                     const Gradient& gradient) {
    for (const ParameterHome& home : toy.layout().homes[stage]) {
        const auto& spec = toy.layout().units[home.unit].parameters()[home.parameter];
        const std::optional<float> value = gradient(spec.name, a);
        if (!value) continue;
        const GradSink::Target target = toy.store()
                                            .grad_sink(static_cast<std::int64_t>(home.unit))
                                            .open(static_cast<std::int64_t>(home.parameter));
        std::vector<float> values(static_cast<std::size_t>(target.memory.count));
        if (target.accumulate) kernels::widen(target.memory, values);
        for (float& element : values) element += *value;
        kernels::narrow(values, target.memory);
    }
}

/// Gradients of one step, summed over ranks and micro-batches, by parameter.
std::vector<std::vector<float>> sum_gradients(ToyTraining& toy, const Gradient& gradient) {
    UnitStore& store = toy.store();
    const auto visit_units = [&](const Visit& visit, auto&& body) {
        std::deque<Lease> leases;
        for (const UnitUse& use : visit.uses) leases.push_back(store.unshard(use));
        for (const std::int64_t unit : visit.prefetch) store.prefetch(unit);
        body();
    };
    for (std::int64_t a = 0; a < toy.options().micro_batches; ++a) {
        for (const Visit& visit : toy.schedule().forward) visit_units(visit, [] {});
        for (const Visit& visit : toy.schedule().backward) {
            visit_units(visit, [&] {
                for (const std::int64_t unit : visit.first_gradients) store.begin_gradients(unit);
                for (const std::size_t stage : visit.stages) {
                    write_gradients(toy, stage, a, gradient);
                }
            });
            for (const std::int64_t unit : visit.reductions) store.reduce(unit);
        }
    }
    store.finish_reductions();
    return read_gradients(store, toy.layout(), toy.mesh().shard_group);
}

/// Each parameter's gradient has this value in all its elements.
void expect_gradients(const std::vector<std::vector<float>>& gradients,
                      const std::vector<float>& expected, const ToySharding& sharding) {
    ASSERT_EQ(gradients.size(), expected.size());
    for (std::size_t p = 0; p < expected.size(); ++p) {
        for (const float element : gradients[p]) {
            ASSERT_EQ(element, expected[p]) << "parameter " << p << ", " << sharding.describe();
        }
    }
}

// https://github.com/microsoft/dion/pull/74
TEST(ReportedBugs, FewerRowsThanRanksToOneRowMore) {
    for (std::int64_t rows = 1; rows <= world().size() + 1; ++rows) {
        const spec::ModelSpec model{
            "rows", {{"m", {parameter("wide", {rows, 40}), parameter("narrow", {rows})}}}};
        const auto expected =
            train_toy_serially(2, world().size(), 2, DType::kFloat32, DType::kFloat32, model);
        for (const ToySharding& sharding : placements(world().size())) {
            EXPECT_TRUE(same_bits(train_toy(world(), sharding, 2, 2, model), expected))
                << rows << " rows, " << sharding.describe();
        }
    }
}

// https://github.com/pytorch/pytorch/issues/102821,
// https://github.com/huggingface/transformers/pull/48237,
// https://github.com/databricks/flashoptim/pull/6
TEST(ReportedBugs, RanksThatOwnNothingTakePartInEverything) {
    const spec::ModelSpec model{"tiny", {{"s", {parameter("p", {3})}}}};
    const auto expected =
        train_toy_serially(2, world().size(), 2, DType::kFloat32, DType::kFloat32, model);
    for (const ToySharding& sharding : placements(world().size())) {
        ToyTraining toy(world(), sharding, 2, model);
        toy.evaluate(1);
        toy.run(0, 2);
        toy.evaluate(1);
        EXPECT_TRUE(same_bits(toy.parameters(), expected)) << sharding.describe();
        const bool owns_nothing =
            toy.layout()
                .units[0]
                .pieces(toy.store().owned_begin(0), toy.store().master(0).count)
                .empty();
        const bool sharded = !find_strategy(sharding.strategy).keeps_everything();
        EXPECT_EQ(owns_nothing, sharded && toy.mesh().shard_group.rank() > 0)
            << sharding.describe();
    }
}

// https://github.com/NVIDIA/Megatron-LM/pull/3023,
// https://github.com/allenai/open-instruct/pull/1498: a factor or a reset that also hits the sum of
// earlier micro-batches.
TEST(ReportedBugs, IdenticalMicroBatchesAddUpWithEqualWeights) {
    constexpr float kGradient = 3.0F / 1024;
    for (const std::int64_t micro_batches : {2, 5}) {
        const float sum = kGradient * static_cast<float>(micro_batches * world().size());
        for (const ToySharding& sharding : accumulating_placements(DType::kFloat32)) {
            ToyTraining toy(world(), sharding, micro_batches, three_parameters());
            expect_gradients(sum_gradients(toy, [](auto&, auto) { return kGradient; }),
                             {sum, sum, sum}, sharding);
        }
    }
}

// https://github.com/pytorch/pytorch/issues/106395, https://github.com/pytorch/pytorch/pull/194628:
// bf16 has 8 significant bits, and 256 + 1 is 256 in it.
TEST(ReportedBugs, Bf16GradientsOf256And1AddUpTo257) {
    const auto gradient = [](const std::string&, std::int64_t a) {
        return world().rank() > 0 ? 0.0F : a == 0 ? 256.0F : 1.0F;
    };
    for (const ToySharding& sharding : accumulating_placements(DType::kBFloat16)) {
        ToyTraining toy(world(), sharding, 2, three_parameters());
        expect_gradients(sum_gradients(toy, gradient), {257, 257, 257}, sharding);
    }
}

// https://github.com/pytorch/pytorch/issues/196996
TEST(ReportedBugs, ParameterFirstUsedInTheLastMicroBatch) {
    const auto gradient = [](const std::string& name, std::int64_t a) -> std::optional<float> {
        if (name == "b" && a < 2) return std::nullopt;  // alone in its unit, or not
        if (name == "c" && a < 2) return std::nullopt;
        return 1.0F;
    };
    const auto ranks = static_cast<float>(world().size());
    for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
        for (const ToySharding& sharding : accumulating_placements(compute)) {
            ToyTraining toy(world(), sharding, 3, three_parameters());
            expect_gradients(sum_gradients(toy, gradient), {3 * ranks, ranks, ranks}, sharding);
        }
    }
}

// https://github.com/pytorch/pytorch/issues/158719,
// https://github.com/pytorch/torchtitan/issues/2747: ranks that use other parameters than their
// peers reduce other sizes.
TEST(ReportedBugs, LayerUsedOnOneRankOnly) {
    const int last = world().size() - 1;
    const auto gradient = [last](const std::string& name, std::int64_t) -> std::optional<float> {
        if (name != "a" && world().rank() != last) return std::nullopt;
        return 1.0F;
    };
    const auto ranks = static_cast<float>(world().size());
    for (const ToySharding& sharding : accumulating_placements(DType::kFloat32)) {
        ToyTraining toy(world(), sharding, 2, three_parameters());
        expect_gradients(sum_gradients(toy, gradient), {2 * ranks, 2, 2}, sharding);
    }
}

// https://github.com/deepspeedai/DeepSpeed/issues/2071,
// https://github.com/deepspeedai/DeepSpeed/issues/2352: fp16 sums of bf16 models overflow.
TEST(ReportedBugs, GradientsBeyondFp16AreReducedInTheTypeAskedFor) {
    constexpr float kGradient = 1.5F * 65536;  // the largest fp16 is 65504
    const float sum = kGradient * static_cast<float>(world().size());
    for (const DType reduce : {DType::kBFloat16, DType::kFloat32}) {
        for (ToySharding sharding : accumulating_placements(DType::kBFloat16)) {
            sharding.reduce = reduce;
            ToyTraining toy(world(), sharding, 1, three_parameters());
            expect_gradients(sum_gradients(toy, [](auto&, auto) { return kGradient; }),
                             {sum, sum, sum}, sharding);
        }
    }
}

// https://github.com/allenai/OLMo-core/pull/319, https://github.com/pytorch/torchtitan/issues/670,
// https://github.com/mosaicml/composer/pull/2812: replicas that start apart stay apart.
TEST(ReportedBugs, InitialParametersDependOnNeitherRanksNorReplicas) {
    const auto expected = train_toy_serially(0, 1, 1);
    for (int ranks = 1; ranks <= world().size(); ++ranks) {
        on_first_ranks(ranks, [&](const comm::Group& group) {
            for (const ToySharding& sharding : placements(ranks)) {
                EXPECT_TRUE(same_bits(train_toy(group, sharding, 0, 1), expected))
                    << sharding.describe() << " on " << ranks;
            }
        });
    }
}

// https://github.com/pytorch/pytorch/issues/147179,
// https://github.com/pytorch/pytorch/issues/149029: whole parameters stay behind after a pass
// without gradients. Poison marks what a store has given up.
TEST(ReportedBugs, EvaluationLeavesNothingUnsharded) {
    for (const bool node_shared : {true, false}) {
        const ToySharding sharding{.store = StorePreference::kSlotted,
                                   .node_shared = node_shared,
                                   .faults = {.poison = true}};
        ToyTraining toy(world(), sharding, 1);
        const std::vector<Allocation> before = toy.store().allocations();
        for (int pass = 0; pass < 3; ++pass) {
            toy.evaluate(1);
            EXPECT_EQ(toy.store().allocations(), before);
            world().barrier();
            for (std::size_t u = 0; u < toy.layout().units.size(); ++u) {
                const TypedSpan memory = toy.store().unsharded(static_cast<std::int64_t>(u));
                for (const float value : memory.as<float>()) {
                    ASSERT_TRUE(std::isnan(value)) << "unit " << u << ", " << sharding.describe();
                }
            }
            world().barrier();
        }
    }
}

}  // namespace
}  // namespace fullshard::shard
