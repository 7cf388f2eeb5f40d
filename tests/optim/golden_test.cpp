// The optimizer by itself against PyTorch (tests/golden/README.md).
#include "base/files.h"
#include "optim/adamw.h"
#include "optim/loss_scaler.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace fullshard::optim {
namespace {

using nlohmann::json;

json read_golden(const std::string& file) {
    return json::parse(read_file(std::string(FULLSHARD_GOLDEN_DIR) + "/" + file));
}

TEST(OptimizerGolden, AParameterDecaysAndKeepsMovingInStepsThatDoNotUseIt) {
    const json golden = read_golden("unused_parameter.json");
    const json& settings = golden.at("optimizer");
    std::vector<float> weight = golden.at("initial").at("adapter.weight");
    const auto numel = std::ssize(weight);
    AdamW optimizer({settings.at("beta1"), settings.at("beta2"), settings.at("eps")},
                    {{weight, {{0, numel, {1, settings.at("weight_decay")}}}}});
    for (const json& step : golden.at("steps")) {
        const std::vector<float> gradient = step.at("adapter_gradient");
        optimizer.begin_step();
        optimizer.step(0, gradient, settings.at("lr"));
        for (std::size_t i = 0; i < weight.size(); ++i) {
            EXPECT_NEAR(weight[i], step.at("adapter_after")[i].get<float>(), 1e-7) << i;
        }
    }
}

TEST(OptimizerGolden, TheLossScaleFollowsOverflowsAsPyTorchsRunDid) {
    const json golden = read_golden("simple_transformer_fp16.json");
    const json& settings = golden.at("loss_scaler");
    LossScaler scaler({.initial = settings.at("initial"),
                       .window = settings.at("window"),
                       .hysteresis = settings.at("hysteresis"),
                       .minimum = settings.at("minimum")});
    const json& run = golden.at("half");
    for (std::size_t step = 0; step < run.at("skipped").size(); ++step) {
        EXPECT_EQ(scaler.scale(), run.at("loss_scales")[step].get<double>()) << "step " << step;
        scaler.update(run.at("skipped")[step]);
    }
}

}  // namespace
}  // namespace fullshard::optim
