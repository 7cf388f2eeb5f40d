#include "shard/layout.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace fullshard::shard {
namespace {

spec::ParameterSpec parameter(std::string name, std::vector<std::int64_t> shape,
                              bool trainable = true) {
    spec::ParameterSpec p;
    p.name = std::move(name);
    p.shape = std::move(shape);
    p.trainable = trainable;
    return p;
}

TEST(Unit, ParametersStartAt256BytesAndShardsAreEqual) {
    for (std::int64_t shards = 1; shards <= 9; ++shards) {
        const Unit unit(
            "u", {0}, {parameter("a", {3, 5}), parameter("b", {64}), parameter("c", {1})}, shards);
        EXPECT_EQ(unit.placement(0).offset, 0);
        EXPECT_EQ(unit.placement(1).offset, 64);
        EXPECT_EQ(unit.placement(2).offset, 128);
        EXPECT_EQ(unit.numel(), 15 + 64 + 1);
        EXPECT_EQ(unit.shard_numel() * shards, unit.padded());
        EXPECT_GE(unit.padded(), 129);
        EXPECT_LT(unit.padded() - 129, std::lcm(64, 32 * shards));
        EXPECT_EQ(unit.shard_numel() % 32, 0);
        EXPECT_EQ(unit.padded() % 64, 0);  // the next unit keeps the alignment
    }
}

TEST(Unit, TrainableParametersComeFirst) {
    const Unit unit("u", {0}, {parameter("frozen", {10}, false), parameter("learns", {10})}, 2);
    EXPECT_EQ(unit.placement(1).offset, 0);
    EXPECT_EQ(unit.placement(0).offset, 64);
    EXPECT_TRUE(unit.trainable());
    EXPECT_FALSE(Unit("f", {0}, {parameter("frozen", {10}, false)}, 2).trainable());
}

TEST(Unit, PiecesOfAllShardsCoverEveryElementOnce) {
    for (std::int64_t shards = 1; shards <= 9; ++shards) {
        const Unit unit("u", {0},
                        {parameter("a", {7, 11}), parameter("b", {100}), parameter("c", {3})},
                        shards);
        std::vector<std::vector<int>> seen{std::vector<int>(77), std::vector<int>(100),
                                           std::vector<int>(3)};
        for (std::int64_t shard = 0; shard < shards; ++shard) {
            for (const ShardPiece& piece :
                 unit.pieces(shard * unit.shard_numel(), unit.shard_numel())) {
                for (std::int64_t i = 0; i < piece.count; ++i) {
                    ++seen[piece.parameter][static_cast<std::size_t>(piece.parameter_begin + i)];
                    const std::int64_t flat = shard * unit.shard_numel() + piece.shard_begin + i;
                    EXPECT_EQ(flat,
                              unit.placement(piece.parameter).offset + piece.parameter_begin + i);
                }
            }
        }
        for (const auto& counts : seen) {
            for (const int count : counts) EXPECT_EQ(count, 1);
        }
    }
}

TEST(Unit, FewerElementsThanShardsLeaveShardsOfPadding) {
    const Unit unit("u", {0}, {parameter("a", {3})}, 8);
    EXPECT_EQ(unit.pieces(0, unit.shard_numel()).size(), 1U);
    EXPECT_TRUE(unit.pieces(unit.shard_numel(), unit.shard_numel()).empty());
}

TEST(Unit, HugeParametersNeed64Bits) {
    const Unit unit("u", {0}, {parameter("a", {65536, 65536}), parameter("b", {7})}, 3);
    EXPECT_EQ(unit.placement(1).offset, std::int64_t{1} << 32);
    EXPECT_EQ(unit.numel(), (std::int64_t{1} << 32) + 7);
}

Layout layout_of(const std::vector<std::int64_t>& sizes) {
    Layout layout;
    for (const std::int64_t size : sizes)
        layout.units.emplace_back("u", std::vector<std::size_t>{},
                                  std::vector{parameter("p", {size})}, 1);
    return layout;
}

TEST(SlotPlan, UnitsOfOneSizeTakeTurnsAndOthersHaveTheirOwnClass) {
    const Layout layout = layout_of({1000, 64, 64, 64, 64, 64, 2000});
    const SlotPlan plan = make_slot_plan(layout, 2, std::vector(7, SlotNeed::kShared));
    EXPECT_EQ(plan.slot_of_unit, (std::vector<std::size_t>{0, 1, 2, 1, 2, 1, 3}));
    EXPECT_EQ(plan.numel(), layout.units[0].padded() + 2 * 64 + layout.units[6].padded());
    EXPECT_EQ(plan.slot(4).offset, plan.slot(2).offset);
    EXPECT_EQ(plan.slot(6).numel, layout.units[6].padded());
}

TEST(SlotPlan, NeverMoreSlotsThanUnits) {
    EXPECT_EQ(
        make_slot_plan(layout_of({64, 64}), 5, std::vector(2, SlotNeed::kShared)).slots.size(), 2U);
}

TEST(SlotPlan, AUnitMayHaveASlotOfItsOwnOrNone) {
    using enum SlotNeed;
    const SlotPlan plan = make_slot_plan(layout_of({64, 64, 64, 64, 64}), 1,
                                         {kShared, kOwn, kShared, kNone, kShared});
    EXPECT_EQ(plan.slot_of_unit, (std::vector<std::size_t>{0, 1, 0, SlotPlan::kNoSlot, 0}));
}

spec::ModelSpec five_stages() {
    spec::ModelSpec model{"m", {}};
    model.stages = {{"s0", {parameter("a", {8, 3}), parameter("b", {4})}},
                    {"s1", {parameter("c", {5})}},
                    {"s2", {}},
                    {"s3", {parameter("d", {7})}},
                    {"s4", {parameter("e", {2}), parameter("tied", {8, 3})}}};
    model.stages[4].parameters[1].tied_to = "a";
    return model;
}

std::vector<std::string> names(const Layout& layout) {
    std::vector<std::string> list;
    for (const Unit& unit : layout.units) list.push_back(unit.name());
    return list;
}

TEST(Layout, WrapPoliciesGroupStages) {
    using Names = std::vector<std::string>;
    const auto wrapped = [](Wrap wrap) { return make_layout(five_stages(), 2, wrap); };
    EXPECT_EQ(names(wrapped({WrapPolicy::kModel})), Names{"s0..s4"});
    // A stage without parameters is run, but is no unit.
    EXPECT_EQ(names(wrapped({WrapPolicy::kBlock})), (Names{"s0", "s1", "s3", "s4"}));
    EXPECT_EQ(wrapped({WrapPolicy::kBlock}).segments.size(), 5U);
    // s1 to s3 have 12 elements, of which s1's 5 are not enough.
    EXPECT_EQ(names(wrapped({WrapPolicy::kSize, 6})), (Names{"s0", "s1..s3", "s4"}));
    EXPECT_EQ(names(wrapped({WrapPolicy::kSize, 1000})), Names{"s0..s4"});
}

TEST(Layout, TiedParametersLiveWithTheOther) {
    const Layout layout = make_layout(five_stages(), 2);
    EXPECT_EQ(layout.homes[4], (std::vector<ParameterHome>{{3, 0}, {0, 0}}));
    EXPECT_EQ(layout.units_of_segment(4), (std::vector<std::int64_t>{0, 3}));
    // torchtitan 3225: a tied parameter counts once.
    EXPECT_EQ(layout.numel(), 24 + 4 + 5 + 7 + 2);
    EXPECT_EQ(five_stages().numel(), layout.numel());
}

TEST(Layout, RefusesTiesToNothingOrToAnotherShape) {
    spec::ModelSpec model = five_stages();
    model.stages[4].parameters[1].tied_to = "nobody";
    EXPECT_THROW(make_layout(model, 2), LogicError);
    model.stages[4].parameters[1].tied_to = "c";
    EXPECT_THROW(make_layout(model, 2), LogicError);
}

TEST(Layout, ParametersWithoutDimensionsHaveOneElement) {
    const Unit unit("u", {0}, {parameter("scale", {}), parameter("b", {2})}, 3);
    EXPECT_EQ(unit.numel(), 3);
    EXPECT_EQ(unit.pieces(0, unit.padded()).size(), 2U);
}

}  // namespace
}  // namespace fullshard::shard
