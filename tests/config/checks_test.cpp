#include "config/checks.h"

#include "support.h"

#include <gtest/gtest.h>

#include <functional>

namespace fullshard::config {
namespace {

TEST(Contradictions, DefaultsHaveNone) {
    EXPECT_TRUE(contradictions(Deck{}).empty());
}

TEST(Contradictions, EachIsFoundAloneWithItsKeys) {
    const std::vector<std::pair<std::function<void(Deck&)>, std::vector<std::string>>> cases{
        {[](Deck& d) { d.model.num_heads = 3; }, {"model.d_model", "model.num_heads"}},
        {[](Deck& d) {
             d.model.family = Family::kLlama;
             d.model.num_kv_heads = 3;
         },
         {"model.num_heads", "model.num_kv_heads"}},
        {[](Deck& d) {
             d.model.family = Family::kLlama;
             d.model.head_size = 3;
         },
         {"model.d_model", "model.num_heads", "model.head_size"}},
        {[](Deck& d) {
             d.model.family = Family::kLlama;
             d.model.rope_scaling = RopeScaling::kLlama3;
             d.model.rope_low_freq_factor = 4.0;
         },
         {"model.rope_low_freq_factor", "model.rope_high_freq_factor"}},
        {[](Deck& d) {
             d.model.family = Family::kLlama;
             d.model.rope_scaling = RopeScaling::kYarn;
             d.model.rope_beta_slow = 32.0;
         },
         {"model.rope_beta_slow", "model.rope_beta_fast"}},
        {[](Deck& d) {
             d.model.family = Family::kGpt2;
             d.model.max_positions = 127;
         },
         {"model.max_positions", "data.sequence"}},
        {[](Deck& d) { d.data.sources = {{.name = "a"}}; }, {"data.source.a.path"}},
        {[](Deck& d) {
             d.data.sources = {{.name = "a", .path = "a"}};
             d.data.path = "b";
         },
         {"data.path"}},
        {[](Deck& d) {
             d.data.targets = Targets::kRolled;
             d.data.document_mask = true;
         },
         {"data.targets", "data.packing", "data.document_mask"}},
        {[](Deck& d) {
             d.model.family = Family::kCustom;
             d.data.document_mask = true;
         },
         {"data.document_mask", "model.family"}},
        {[](Deck& d) {
             d.generate.prompt = "a";
             d.generate.prompt_tokens = {1};
         },
         {"generate.prompt", "generate.prompt_tokens"}},
        {[](Deck& d) { d.data.source = Source::kText; }, {"data.source", "data.path"}},
        {[](Deck& d) {
             d.data.targets = Targets::kRolled;
             d.data.sequence = 1;
         },
         {"data.targets", "data.sequence"}},
        {[](Deck& d) {
             d.train.eval_every = 10;
             d.data.validation_fraction = 0.0;
         },
         {"train.eval_every", "data.validation_fraction"}},
        {[](Deck& d) {
             d.run.measure_peak = true;
             d.run.peak_gflops = 50.0;
         },
         {"run.measure_peak", "run.peak_gflops"}},
        {[](Deck& d) {
             d.train.micro_batch = 2;
             d.train.grad_accum_steps = 4;
             d.train.global_batch = 12;
         },
         {"train.global_batch", "train.micro_batch", "train.grad_accum_steps"}},
        {[](Deck& d) { d.schedule.warmup_steps = 101; }, {"schedule.warmup_steps", "train.steps"}},
        {[](Deck& d) {
             d.shard.store = Store::kResident;
             d.comm.node_shared = false;
         },
         {"shard.store", "comm.node_shared"}},
        {[](Deck& d) { d.model.family = Family::kTorchScript; }, {"model.family", "model.path"}},
        {[](Deck& d) { d.train.stop_at_step = 101; }, {"train.stop_at_step", "train.steps"}},
        {[](Deck& d) {
             d.optimizer.clip_norm = 1.0;
             d.optimizer.clip_value = 1.0;
         },
         {"optimizer.clip_norm", "optimizer.clip_value"}},
        {[](Deck& d) { d.optimizer.groups = {{.name = "a"}}; }, {"optimizer.group.a.parameters"}},
        {[](Deck& d) {
             d.optimizer.lr = 0.0;
             d.optimizer.groups = {{.name = "a", .patterns = {"*"}, .lr = 1.0}};
         },
         {"optimizer.group.a.lr", "optimizer.lr"}},
        {[](Deck& d) {
             d.shard.strategy = Strategy::kNoShard;
             d.shard.group_size = 2;
         },
         {"shard.strategy", "shard.group_size"}},
        {[](Deck& d) { d.shard.slots = 1; }, {"shard.slots", "shard.prefetch"}},
        {[](Deck& d) {
             d.shard.group_size = 6;
             d.shard.reshard_after_forward = {ReshardAfterForward::Kind::kGroup, 4};
         },
         {"shard.reshard_after_forward", "shard.group_size"}},
        {[](Deck& d) { d.reduce.accumulation = Accumulation::kUnsharded; },
         {"reduce.accumulation", "reduce.order"}},
        {[](Deck& d) {
             d.precision.param = DType::kFloat16;
             d.precision.initial_scale = 1.0;
             d.precision.min_scale = 2.0;
         },
         {"precision.initial_scale", "precision.min_scale"}},
        {[](Deck& d) { d.fault.throw_at_step = 101; }, {"fault.throw_at_step", "train.steps"}},
        {[](Deck& d) {
             d.fault.kill_in_save = SaveStage::kBeforeRename;
             d.fault.rank = 1;
         },
         {"fault.kill_in_save", "fault.rank"}},
    };
    for (const auto& [change, keys] : cases) {
        Deck deck;
        change(deck);
        const auto found = contradictions(deck);
        ASSERT_EQ(found.size(), 1u) << keys.front();
        EXPECT_EQ(found.front().keys, keys);
        EXPECT_FALSE(found.front().remedy.empty());
    }
}

TEST(Contradictions, RemedyForHeadsIsTrue) {
    const std::string error = error_of("[model]\nd_model = 256\nnum_heads = 7\n");
    EXPECT_TRUE(contains(error, "set model.num_heads = 8 or model.d_model = 259")) << error;
}

TEST(Contradictions, ShowValuesAndOrigins) {
    const std::string error = error_of("[schedule]\nwarmup_steps = 20\n", {"--train.steps", "5"});
    EXPECT_TRUE(contains(error,
                         "contradiction: schedule.warmup_steps = 20 (t.ini:2), train.steps = 5 "
                         "(command line): the warm-up would outlast the training; set "
                         "schedule.warmup_steps = 5 or less"))
        << error;
}

TEST(Contradictions, AreNotJudgedOnValuesThatWereRefused) {
    const std::string error = error_of("[model]\nd_model = 10x\nnum_heads = 7\n");
    EXPECT_TRUE(contains(error, "one mistake")) << error;
}

/// Whether the deck contradicts itself.
bool contradicts(const std::function<void(Deck&)>& change) {
    Deck deck;
    change(deck);
    return !contradictions(deck).empty();
}

TEST(Contradictions, OnlyTheBuiltInModelHasHeads) {
    for (const Family family : {Family::kTorchScript, Family::kCustom}) {
        EXPECT_FALSE(contradicts([&](Deck& d) {
            d.model.family = family;
            d.model.path = {"a.pt"};
            d.model.num_heads = 3;
        }));
    }
}

// Parameters that a strategy keeps whole cannot be given up after forward; the others can be kept.
TEST(Contradictions, ReshardingIsForStrategiesThatGiveUpParameters) {
    using Kind = ReshardAfterForward::Kind;
    const auto judged = [](Strategy strategy, ReshardAfterForward reshard) {
        return contradicts([&](Deck& d) {
            d.shard.strategy = strategy;
            d.shard.reshard_after_forward = reshard;
        });
    };
    for (const Strategy strategy : {Strategy::kFullShard, Strategy::kHybridShard}) {
        for (const Kind kind : {Kind::kAuto, Kind::kYes, Kind::kNo}) {
            EXPECT_FALSE(judged(strategy, {kind}));
        }
        EXPECT_FALSE(judged(strategy, {Kind::kGroup, 2}));
    }
    for (const Strategy strategy : {Strategy::kNoShard, Strategy::kZero1, Strategy::kShardGradOp,
                                    Strategy::kHybridShardZero2}) {
        EXPECT_FALSE(judged(strategy, {Kind::kAuto}));
        EXPECT_FALSE(judged(strategy, {Kind::kNo}));
        EXPECT_TRUE(judged(strategy, {Kind::kYes}));
        EXPECT_TRUE(judged(strategy, {Kind::kGroup, 2}));
    }
    EXPECT_TRUE(contains(error_of("[shard]\nstrategy = hybrid_shard_zero2\n"
                                  "reshard_after_forward = on\n"),
                         "set shard.strategy = hybrid_shard, or"));
    EXPECT_TRUE(contains(error_of("[shard]\nstrategy = zero1\nreshard_after_forward = on\n"),
                         "set shard.strategy = full_shard, or"));
}

TEST(Contradictions, WhatLooksLikeOneButHolds) {
    EXPECT_FALSE(contradicts([](Deck& d) {
        d.shard.slots = 1;
        d.shard.prefetch = Prefetch::kOff;
    }));
    EXPECT_FALSE(contradicts([](Deck& d) {
        d.shard.slots = 1;
        d.shard.store = Store::kResident;
    }));
    EXPECT_FALSE(contradicts([](Deck& d) {
        d.shard.slots = 1;
        d.shard.strategy = Strategy::kNoShard;
    }));
    EXPECT_FALSE(contradicts([](Deck& d) {
        d.shard.strategy = Strategy::kNoShard;
        d.shard.group_size = 1;
    }));
    EXPECT_FALSE(contradicts([](Deck& d) {
        d.shard.group_size = 6;
        d.shard.reshard_after_forward = {ReshardAfterForward::Kind::kGroup, 3};
    }));
    EXPECT_FALSE(contradicts([](Deck& d) {
        d.reduce.order = ReduceOrder::kFast;
        d.reduce.accumulation = Accumulation::kUnsharded;
    }));
    EXPECT_FALSE(contradicts([](Deck& d) { d.precision.min_scale = 0x1p20; }));
    EXPECT_FALSE(contradicts([](Deck& d) {
        d.optimizer.lr = 0.0;
        d.optimizer.groups = {{.name = "a", .patterns = {"*"}, .lr = 0.0}};
    }));
}

}  // namespace
}  // namespace fullshard::config
