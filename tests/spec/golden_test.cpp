// Compares descriptions and initial values with a PyTorch module and an independent implementation
// of the generator (tests/golden/make_simple_transformer.py).
#include "base/files.h"
#include "spec/simple_transformer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

namespace fullshard::spec {
namespace {

SimpleTransformer model_of(const nlohmann::json& json) {
    SimpleTransformer model;
    json.at("vocab_size").get_to(model.vocab_size);
    json.at("d_model").get_to(model.d_model);
    json.at("num_heads").get_to(model.num_heads);
    json.at("num_layers").get_to(model.num_layers);
    json.at("d_ff").get_to(model.d_ff);
    json.at("max_positions").get_to(model.max_positions);
    json.at("tie_embeddings").get_to(model.tie_embeddings);
    return model;
}

class SpecGolden : public testing::TestWithParam<const char*> {
  protected:
    nlohmann::json golden_ = nlohmann::json::parse(
        read_file(std::filesystem::path(FULLSHARD_GOLDEN_DIR) /
                  (std::string("simple_transformer_") + GetParam() + ".json")));
};

TEST_P(SpecGolden, NamesShapesDecayAndInitialValuesAreThoseOfPyTorch) {
    const auto seed = golden_.at("seed").get<std::uint64_t>();
    const auto& expected = golden_.at("parameters");
    const auto& before = golden_.at("float32").at("before");
    std::size_t index = 0;
    for (const auto& stage : describe(model_of(golden_.at("model"))).stages) {
        for (const auto& parameter : stage.parameters) {
            if (!parameter.tied_to.empty()) continue;  // PyTorch names it once
            const auto& torch_parameter = expected.at(index++);
            EXPECT_EQ(parameter.name, torch_parameter.at("name"));
            EXPECT_EQ(parameter.shape,
                      torch_parameter.at("shape").get<std::vector<std::int64_t>>());
            EXPECT_EQ(parameter.decay == DecayClass::kDecay,
                      torch_parameter.at("decays").get<bool>());

            std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
            initialize(parameter, seed, 0, values);
            double sum = 0.0, squares = 0.0;
            for (const double x : values) {
                sum += x;
                squares += x * x;
            }
            const auto& stored = before.at(parameter.name);
            const double norm = stored.at("norm");
            EXPECT_NEAR(sum, stored.at("sum").get<double>(), 1e-6 * norm) << parameter.name;
            EXPECT_NEAR(std::sqrt(squares), norm, 1e-6 * norm) << parameter.name;
        }
    }
    EXPECT_EQ(index, expected.size());
}

INSTANTIATE_TEST_SUITE_P(Cases, SpecGolden,
                         testing::Values("postnorm_relu_causal", "prenorm_gelu_bidirectional",
                                         "odd_sizes", "tied"));

}  // namespace
}  // namespace fullshard::spec
