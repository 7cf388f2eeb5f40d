// What transformers' GPT-2 and Llama computed (tests/golden/README.md); free of LibTorch.
#pragma once

#include "model/model.h"
#include "spec/architecture.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fullshard::testing {

struct HfGolden {
    std::uint64_t seed = 0;
    spec::Architecture architecture;
    std::int64_t batch = 0;
    std::int64_t sequence = 0;
    std::vector<std::int64_t> tokens;     ///< [batch, sequence], as the next two
    std::vector<std::int64_t> positions;  ///< empty, as the next, where documents do not matter
    std::vector<std::int64_t> documents;
    std::vector<float> logits;  ///< [batch, sequence, vocabulary]
};

/// Text of tests/golden/hf/<name>.json.
std::string read_hf_text(const std::string& name);
HfGolden read_hf_golden(const std::string& name);

/// The values that tests/golden/hf_models.py gives the parameter; padding rows are zeros.
std::vector<float> closed_form(const spec::ParameterSpec& parameter, std::uint64_t seed);

std::shared_ptr<const model::Model> make_model(const spec::Architecture& architecture);

/// The architecture's model, whose initial values are those of closed_form().
std::shared_ptr<const model::Model> make_closed_form_model(const spec::Architecture& architecture);

}  // namespace fullshard::testing
