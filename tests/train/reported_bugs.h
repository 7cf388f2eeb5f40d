// What the tests of reported mistakes share: every strategy, and batches that depend on nothing but
// their number.
#pragma once

#include "comm/group.h"
#include "data/loader.h"
#include "spec/simple_transformer.h"
#include "train/training_rig.h"

#include <cstdint>
#include <vector>

namespace fullshard::testing {

constexpr std::uint64_t kSeed = 17;

/// Every strategy: with every group size, the hybrid ones on two emulated nodes.
std::vector<Sharding> all_strategies(int ranks);

/// This rank by itself.
comm::Group alone();

spec::SimpleTransformer small_model(double dropout);

/// Two sequences of five tokens, a function of the step and of g.
data::TokenBatch made_up_batch(std::int64_t step, std::int64_t g, std::int64_t vocab_size);

/// Euclidean norm.
double norm_of(const std::vector<float>& values);

}  // namespace fullshard::testing
