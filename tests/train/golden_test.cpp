// Twenty steps against PyTorch: same weights, batches and settings (tests/golden/README.md).
#include "support/mpi_world.h"
#include "support/store_reading.h"
#include "train/golden_case.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <span>

namespace fullshard::train {
namespace {

using fullshard::testing::GoldenCase;
using fullshard::testing::GoldenNorm;
using fullshard::testing::GoldenStep;
using fullshard::testing::read_golden;
using fullshard::testing::same_bits;
using fullshard::testing::sequences_of;
using fullshard::testing::Sharding;
using fullshard::testing::shardings;
using fullshard::testing::TrainingRig;
using fullshard::testing::world;

double norm_of(std::span<const float> values) {
    return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

void expect_near(double actual, const GoldenNorm& expected, const std::string& what) {
    EXPECT_NEAR(actual, expected.value, expected.tolerance) << what;
}

/// Gradients carry the scale of the loss that they are the gradients of.
void compare_first_gradients(const std::vector<std::vector<float>>& gradients,
                             const GoldenCase& golden, double loss_scale) {
    ASSERT_EQ(gradients.size(), golden.parameters.size());
    for (std::size_t p = 0; p < gradients.size(); ++p) {
        const auto& parameter = golden.parameters[p];
        if (!parameter.trainable) continue;
        expect_near(norm_of(gradients[p]) / loss_scale, parameter.first_gradient,
                    "gradient of " + parameter.name);
    }
}

void compare_parameters(const std::vector<std::vector<float>>& before,
                        const std::vector<std::vector<float>>& after, const GoldenCase& golden) {
    ASSERT_EQ(after.size(), golden.parameters.size());
    for (std::size_t p = 0; p < after.size(); ++p) {
        const auto& parameter = golden.parameters[p];
        if (!parameter.trainable) {
            EXPECT_TRUE(same_bits(before[p], after[p])) << parameter.name << " is frozen";
        } else if (parameter.comparable_after) {
            expect_near(norm_of(after[p]), parameter.after, parameter.name + " after training");
        }
    }
}

/// The optimizer holds nothing for frozen parameters. On one rank, where a shard is a whole unit.
void expect_no_state_of_frozen_parameters(TrainingRig& rig) {
    const auto& units = rig.layout().units;
    for (std::size_t u = 0; u < units.size(); ++u) {
        std::int64_t frozen = 0;
        for (const auto& parameter : units[u].parameters()) {
            if (!parameter.trainable) frozen += parameter.numel();
        }
        const auto moments = rig.optimizer().first_moment(static_cast<std::int64_t>(u));
        EXPECT_LE(moments.count, units[u].shard_numel() - frozen) << units[u].name();
    }
}

void compare_step(const TrainingRig::Step& actual, const GoldenStep& expected,
                  const GoldenCase& golden) {
    EXPECT_NEAR(actual.loss, expected.loss, golden.loss_tolerance * expected.loss);
    EXPECT_EQ(actual.loss_scale, expected.loss_scale);
    EXPECT_EQ(std::isfinite(actual.grad_norm), !expected.skipped);
    if (!expected.skipped) {
        EXPECT_NEAR(actual.grad_norm, expected.grad_norm,
                    golden.grad_norm_tolerance * expected.grad_norm);
    }
}

/// `micro_batch` sequences at a time; ranks and accumulation share the rest of the batch.
void compare_with_golden(const comm::Group& ranks, const GoldenCase& golden,
                         const Sharding& sharding, std::int64_t micro_batch) {
    TrainingRig rig(ranks, golden.model,
                    {.sharding = sharding,
                     .micro_batches = golden.batch() / micro_batch / ranks.size(),
                     .seed = golden.seed,
                     .optimizer = golden.optimizer,
                     .precision = golden.precision});
    if (ranks.size() == 1) expect_no_state_of_frozen_parameters(rig);
    const auto before = rig.parameters();
    bool compared_gradients = false;
    double moved_by_half_width = 0.0, expected_move = 0.0;
    for (std::int64_t step = 0; step < std::ssize(golden.steps); ++step) {
        SCOPED_TRACE(::testing::Message()
                     << sharding.name << ", micro-batch " << micro_batch << ", step " << step);
        const auto s = static_cast<std::size_t>(step);
        const GoldenStep& expected = golden.steps[s];
        const auto& batch = golden.batch_of(step);
        const auto result = rig.accumulate(
            step, [&](std::int64_t g) { return sequences_of(batch, g * micro_batch, micro_batch); },
            batch.valid_targets);
        compare_step(result, expected, golden);
        if (!expected.skipped && !compared_gradients) {
            compare_first_gradients(rig.gradients(), golden, result.loss_scale);
            compared_gradients = true;
        }
        EXPECT_EQ(rig.update(golden.optimizer.lr), !expected.skipped);
        moved_by_half_width += std::abs(result.loss - golden.full_width_losses[s]);
        expected_move += std::abs(expected.loss - golden.full_width_losses[s]);
        if (::testing::Test::HasFailure()) return;  // later steps only repeat it
    }
    compare_parameters(before, rig.parameters(), golden);
    if (golden.half_width()) {
        EXPECT_GT(moved_by_half_width, 0.25 * expected_move) << "full width passes all else, too";
    }
}

class Golden : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, Golden,
                         ::testing::Values("postnorm_relu_causal", "prenorm_gelu_bidirectional",
                                           "odd_sizes", "accumulation", "clip_norm", "clip_value",
                                           "tied", "frozen_parts", "frozen_bottom",
                                           "parameter_groups", "unused_positions", "bf16", "fp16",
                                           "hf/gpt2_tied", "hf/gpt2_untied", "hf/gpt2_folder",
                                           "hf/llama_untied", "hf/llama_tied", "hf/llama_folder"));

TEST_P(Golden, OneRankAgreesWithPyTorch) {
    if (world().size() > 1) GTEST_SKIP() << "needs one rank only, and a world of one runs it";
    const GoldenCase golden = read_golden(GetParam());
    for (const Sharding& sharding : shardings(1)) {
        compare_with_golden(world(), golden, sharding, golden.micro_batch);
    }
}

TEST_P(Golden, AnyMicroBatchAgreesWithPyTorch) {
    if (world().size() > 1) GTEST_SKIP() << "needs one rank only, and a world of one runs it";
    const GoldenCase golden = read_golden(GetParam());
    if (golden.half_width()) GTEST_SKIP() << "the gradients of each micro-batch are rounded";
    for (const std::int64_t micro_batch : std::set{std::int64_t{1}, golden.batch()}) {
        compare_with_golden(world(), golden, shardings(1).front(), micro_batch);
    }
}

TEST_P(Golden, ShardedRanksAgreeWithPyTorch) {
    if (world().size() == 1) GTEST_SKIP() << "needs several ranks";
    const GoldenCase golden = read_golden(GetParam());
    const std::int64_t micro_batch = golden.half_width() ? golden.micro_batch : 1;
    if (golden.batch() / micro_batch % world().size() != 0) {
        GTEST_SKIP() << golden.batch() / micro_batch << " micro-batches on " << world().size()
                     << " ranks";
    }
    for (const Sharding& sharding : shardings(world().size())) {
        compare_with_golden(world(), golden, sharding, micro_batch);
    }
}

}  // namespace
}  // namespace fullshard::train
