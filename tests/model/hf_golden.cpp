#include "model/hf_golden.h"

#include "base/files.h"
#include "model/gpt2.h"
#include "model/llama.h"
#include "model/stage.h"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <utility>
#include <variant>

namespace fullshard::testing {
namespace {

using nlohmann::json;

template <typename T>
void append(const json& nested, std::vector<T>& out) {
    if (!nested.is_array()) {
        out.push_back(nested.get<T>());
        return;
    }
    for (const json& part : nested) append(part, out);
}

bool is_norm(const std::string& name) {
    for (const char* part : {"ln_1", "ln_2", "ln_f", "norm"})
        if (name.find(part) != std::string::npos) return true;
    return false;
}

class ClosedFormModel final : public model::Model {
  public:
    explicit ClosedFormModel(const spec::Architecture& architecture)
        : model_(make_model(architecture)), spec_(model_->spec()) {
        for (auto& stage : spec_.stages)
            for (auto& parameter : stage.parameters)
                parameter.init.kind = spec::InitRule::Kind::kModule;
    }

    const spec::ModelSpec& spec() const override { return spec_; }
    std::unique_ptr<model::Stage> make_stage(std::size_t index,
                                             std::vector<model::Parameter> parameters,
                                             const model::Computing& computing) const override {
        return model_->make_stage(index, std::move(parameters), computing);
    }
    std::vector<std::vector<float>> initial_values(std::size_t index,
                                                   std::uint64_t seed) const override {
        std::vector<std::vector<float>> values;
        for (const auto& parameter : spec_.stages.at(index).parameters)
            values.push_back(closed_form(parameter, seed));
        return values;
    }
    bool causal() const override { return model_->causal(); }

  private:
    std::shared_ptr<const model::Model> model_;
    spec::ModelSpec spec_;
};

}  // namespace

std::string read_hf_text(const std::string& name) {
    return read_file(std::string(FULLSHARD_GOLDEN_DIR) + "/hf/" + name + ".json");
}

HfGolden read_hf_golden(const std::string& name) {
    const json golden = json::parse(read_hf_text(name));
    HfGolden result;
    result.seed = golden.at("seed");
    result.architecture = spec::parse_hf_config(golden.at("config").dump(), name);
    result.batch = std::ssize(golden.at("tokens"));
    result.sequence = std::ssize(golden.at("tokens").at(0));
    append(golden.at("tokens"), result.tokens);
    append(golden.at("logits"), result.logits);
    if (golden.contains("documents")) {
        append(golden.at("positions"), result.positions);
        append(golden.at("documents"), result.documents);
    }
    return result;
}

std::vector<float> closed_form(const spec::ParameterSpec& parameter, std::uint64_t seed) {
    const bool vector = parameter.shape.size() < 2;
    const bool norm_weight =
        vector && is_norm(parameter.name) && parameter.name.ends_with(".weight");
    spec::ParameterSpec drawn = parameter;
    drawn.init = {spec::InitRule::Kind::kNormal, !vector ? 0.08 : norm_weight ? 0.1 : 0.05};
    std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
    spec::initialize(drawn, seed, 0, values);
    if (norm_weight) {
        for (float& value : values) value += 1.0F;
    }
    return values;
}

std::shared_ptr<const model::Model> make_model(const spec::Architecture& architecture) {
    if (const auto* gpt2 = std::get_if<spec::Gpt2>(&architecture)) return model::make_gpt2(*gpt2);
    return model::make_llama(std::get<spec::Llama>(architecture));
}

std::shared_ptr<const model::Model> make_closed_form_model(const spec::Architecture& architecture) {
    return std::make_shared<ClosedFormModel>(architecture);
}

}  // namespace fullshard::testing
