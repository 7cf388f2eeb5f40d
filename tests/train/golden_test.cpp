// Twenty steps against PyTorch: same weights, batches and AdamW settings (tests/golden/README.md).
#include "base/files.h"
#include "support/mpi_world.h"
#include "train/training_rig.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <numeric>

namespace fullshard::train {
namespace {

using fullshard::testing::Sharding;
using fullshard::testing::TrainingRig;
using fullshard::testing::world;
using nlohmann::json;

constexpr double kLossTolerance = 1e-5;  // relative, over all 20 steps
constexpr double kGradTolerance = 1e-5;  // relative to the tensor's norm, first step

json read_golden(const std::string& name) {
    return json::parse(
        read_file(std::string(FULLSHARD_GOLDEN_DIR) + "/simple_transformer_" + name + ".json"));
}

spec::SimpleTransformer model_of(const json& model) {
    return {.vocab_size = model["vocab_size"],
            .d_model = model["d_model"],
            .num_heads = model["num_heads"],
            .num_layers = model["num_layers"],
            .d_ff = model["d_ff"],
            .max_positions = model["max_positions"],
            .dropout = model["dropout"],
            .activation =
                model["activation"] == "relu" ? spec::Activation::kRelu : spec::Activation::kGelu,
            .norm_first = model["norm_first"],
            .causal = model["causal"]};
}

/// Sequences [g n, (g + 1) n) of the step's batch.
data::TokenBatch sequences(const json& batch, std::int64_t g, std::int64_t n) {
    data::TokenBatch result;
    result.batch = n;
    for (std::int64_t row = g * n; row < (g + 1) * n; ++row) {
        for (const std::int64_t token : batch["tokens"][row]) result.tokens.push_back(token);
        for (const std::int64_t target : batch["targets"][row]) result.targets.push_back(target);
    }
    result.sequence = static_cast<std::int64_t>(result.tokens.size()) / n;
    return result;
}

/// `micro_batch` sequences at a time; ranks and accumulation share the rest of the batch of four.
void compare_with_golden(const comm::Group& ranks, const std::string& name,
                         const Sharding& sharding, std::int64_t micro_batch) {
    const json golden = read_golden(name);
    const auto& settings = golden["optimizer"];
    const std::int64_t batch = golden["data"]["batch"];
    TrainingRig rig(
        ranks, model_of(golden["model"]), sharding, batch / micro_batch / ranks.size(),
        golden["seed"],
        {settings["beta1"], settings["beta2"], settings["eps"], settings["weight_decay"]});
    const auto& batches = golden["batches"];
    for (std::int64_t step = 0; step < golden["steps"]; ++step) {
        const json& of_step = batches[static_cast<std::size_t>(step) % batches.size()];
        const auto result = rig.accumulate(
            step, [&](std::int64_t g) { return sequences(of_step, g, micro_batch); },
            of_step["valid_targets"]);
        const double loss = golden["float32"]["losses"][step];
        const double norm = golden["float32"]["grad_norms"][step];
        ASSERT_NEAR(result.loss, loss, kLossTolerance * loss)
            << name << ", " << sharding.name << ", step " << step;
        ASSERT_NEAR(result.grad_norm, norm, 1e-3 * norm) << name << ", step " << step;
        if (step == 0) {
            const auto gradients = rig.gradients();
            for (std::size_t p = 0; p < gradients.size(); ++p) {
                const std::string parameter = golden["parameters"][p]["name"];
                const double expected = golden["float32"]["first_gradients"][parameter]["norm"];
                const double actual = std::sqrt(std::inner_product(
                    gradients[p].begin(), gradients[p].end(), gradients[p].begin(), 0.0));
                EXPECT_NEAR(actual, expected, kGradTolerance * expected) << parameter;
            }
        }
        rig.update(settings["lr"]);
    }
    const auto after = rig.parameters();
    for (std::size_t p = 0; p < after.size(); ++p) {
        const json& parameter = golden["parameters"][p];
        if (!parameter["comparable_after"]) continue;
        const double expected = golden["float32"]["after"][std::string(parameter["name"])]["norm"];
        const double actual =
            std::sqrt(std::inner_product(after[p].begin(), after[p].end(), after[p].begin(), 0.0));
        EXPECT_NEAR(actual, expected, 1e-3 * expected) << parameter["name"];
    }
}

class Golden : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Cases, Golden,
                         ::testing::Values("postnorm_relu_causal", "prenorm_gelu_bidirectional",
                                           "odd_sizes"));

TEST_P(Golden, OneRankAgreesWithPyTorch) {
    fullshard::testing::on_first_ranks(1, [](const comm::Group& one) {
        for (const Sharding& sharding : fullshard::testing::shardings(1)) {
            for (const std::int64_t micro_batch : {4, 1}) {
                compare_with_golden(one, GetParam(), sharding, micro_batch);
            }
        }
    });
}

TEST_P(Golden, ShardedRanksAgreeWithPyTorch) {
    if (4 % world().size() != 0) GTEST_SKIP() << "the batch of 4 sequences needs 1, 2 or 4 ranks";
    for (const Sharding& sharding : fullshard::testing::shardings(world().size())) {
        compare_with_golden(world(), GetParam(), sharding, 1);
    }
}

}  // namespace
}  // namespace fullshard::train
