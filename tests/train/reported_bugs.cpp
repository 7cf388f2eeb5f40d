#include "train/reported_bugs.h"

#include "support/mpi_world.h"
#include "train/assemble.h"

#include <cmath>
#include <numeric>
#include <string>

namespace fullshard::testing {

std::vector<Sharding> all_strategies(int ranks) {
    using enum config::Strategy;
    std::vector<Sharding> list{unsharded()};
    const auto add = [&](config::Strategy strategy, int group_size, int ranks_per_node) {
        Sharding sharding{.name = {},
                          .shard = {.strategy = strategy, .group_size = group_size},
                          .ranks_per_node = ranks_per_node};
        sharding.name = std::string(train::strategy_of(sharding.shard).name);
        sharding.name +=
            group_size > 0 ? " in groups of " + std::to_string(group_size) : " in groups of a node";
        list.push_back(sharding);
    };
    for (const auto strategy : {kZero1, kShardGradOp, kFullShard}) {
        for (int group = 1; group <= ranks; ++group) {
            if (ranks % group == 0) add(strategy, group, 0);
        }
    }
    if (ranks % 2 == 0) {
        add(kHybridShard, 0, ranks / 2);
        add(kHybridShardZero2, 0, ranks / 2);
    }
    return list;
}

comm::Group alone() {
    return comm::Group::self(world().timeout_s());
}

spec::SimpleTransformer small_model(double dropout) {
    return {.vocab_size = 23,
            .d_model = 12,
            .num_heads = 3,
            .num_layers = 2,
            .d_ff = 20,
            .dropout = dropout};
}

data::TokenBatch made_up_batch(std::int64_t step, std::int64_t g, std::int64_t vocab_size) {
    constexpr std::int64_t kBatch = 2, kSequence = 5;
    data::TokenBatch batch{.tokens = {},
                           .targets = {},
                           .batch = kBatch,
                           .sequence = kSequence,
                           .valid_targets = kBatch * kSequence};
    for (std::int64_t i = 0; i < kBatch * kSequence; ++i) {
        batch.tokens.push_back((step * 7 + g * 3 + i * i) % vocab_size);
        batch.targets.push_back((step * 5 + g + i * 2) % vocab_size);
    }
    return batch;
}

double norm_of(const std::vector<float>& values) {
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

}  // namespace fullshard::testing
