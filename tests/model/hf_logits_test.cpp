// Logits against transformers: every variant of rotary positions, grouped heads, tied and untied
// heads, odd sizes, packed documents.
#include "model/hf_golden.h"
#include "model/stage_rig.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <variant>

namespace fullshard::model {
namespace {

using fullshard::testing::closed_form;
using fullshard::testing::HfGolden;
using fullshard::testing::make_model;
using fullshard::testing::read_hf_golden;

// The largest difference seen is 6e-7; plain rotary positions in place of a variant differ by 1e-2
// and more.
constexpr double kTolerance = 1e-5;

at::Tensor integers(const std::vector<std::int64_t>& values, const HfGolden& golden) {
    if (values.empty()) return {};
    return at::from_blob(const_cast<std::int64_t*>(values.data()), {golden.batch, golden.sequence},
                         at::kLong)
        .clone();
}

MicroBatch batch_of(const HfGolden& golden) {
    MicroBatch batch{.tokens = integers(golden.tokens, golden),
                     .targets = {},
                     .training = false,
                     .positions = integers(golden.positions, golden)};
    if (!golden.positions.empty()) {
        batch.longest_document = *std::ranges::max_element(golden.positions) + 1;
    }
    if (!golden.documents.empty()) {
        batch.attention_mask = document_mask(integers(golden.documents, golden), /*causal=*/true);
    }
    return batch;
}

at::Tensor expected_logits(const HfGolden& golden) {
    const std::int64_t rows = golden.batch * golden.sequence;
    return at::from_blob(const_cast<float*>(golden.logits.data()),
                         {golden.batch, golden.sequence, std::ssize(golden.logits) / rows},
                         at::kFloat)
        .clone();
}

/// Elements of padding rows become `padding`.
at::Tensor logits_of(const spec::Architecture& architecture, std::uint64_t seed,
                     const MicroBatch& batch, DType compute, float padding = 0) {
    const at::NoGradGuard no_grad;
    const auto model = make_model(architecture);
    const auto& stages = model->spec().stages;
    at::Tensor x;
    for (std::size_t index = 0; index < stages.size(); ++index) {
        StageRig rig(model, index, {.compute = compute});
        for (std::size_t i = 0; i < rig.size(); ++i) {
            // A tied head has the values of the table, which is drawn by the table's name.
            spec::ParameterSpec parameter = stages[index].parameters[i];
            if (!parameter.tied_to.empty()) parameter.name = parameter.tied_to;
            std::vector<float> values = closed_form(parameter, seed);
            std::fill(values.end() - parameter.padding_numel(), values.end(), padding);
            rig.memory(i).copy_(at::from_blob(values.data(), rig.memory(i).sizes(), at::kFloat));
        }
        x = rig.stage().forward(x, batch);
    }
    return x.to(at::kFloat);
}

class HfLogits : public ::testing::TestWithParam<const char*> {
  protected:
    HfGolden golden_ = read_hf_golden(GetParam());
};

TEST_P(HfLogits, AreThoseOfTransformers) {
    const at::Tensor logits =
        logits_of(golden_.architecture, golden_.seed, batch_of(golden_), DType::kFloat32);
    expect_close(logits, expected_logits(golden_), kTolerance, "logits");
}

TEST_P(HfLogits, OfAPaddedVocabularyAreTheSame) {
    spec::Architecture padded = golden_.architecture;
    std::visit([](auto& model) { model.padded_vocab_size += 3; }, padded);
    const at::Tensor logits = logits_of(padded, golden_.seed, batch_of(golden_), DType::kFloat32,
                                        std::numeric_limits<float>::quiet_NaN());
    expect_close(logits, expected_logits(golden_), kTolerance, "logits");
}

TEST_P(HfLogits, InHalfWidthAreCloseToThose) {
    const at::Tensor expected = expected_logits(golden_);
    for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
        const at::Tensor logits =
            logits_of(golden_.architecture, golden_.seed, batch_of(golden_), type);
        const double error = (logits - expected).norm().item<double>();
        // A few roundings to 8 or 11 bits in a row.
        const double tolerance = type == DType::kBFloat16 ? 3e-2 : 4e-3;
        EXPECT_TRUE(error <= tolerance * expected.norm().item<double>()) << name_of(type);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, HfLogits,
    ::testing::Values("gpt2_tied", "gpt2_untied", "gpt2_odd_sizes", "gpt2_documents", "gpt2_folder",
                      "llama_untied", "llama_tied", "llama_one_kv_head", "llama_no_groups",
                      "llama_head_size", "llama_odd_sizes", "llama_documents", "llama_folder",
                      "llama_rope_linear", "llama_rope_linear_v4", "llama_rope_dynamic",
                      "llama_rope_dynamic_short", "llama_rope_llama3", "llama_rope_llama3_v4",
                      "llama_rope_yarn", "llama_rope_yarn_v4"),
    [](const auto& entry) { return std::string(entry.param); });

// Packed rows are what they hold: documents alone, positions from zero, and no word of the others.
TEST(DocumentMask, APackedRowIsItsDocumentsAlone) {
    for (const char* name : {"gpt2_documents", "llama_documents"}) {
        const HfGolden golden = read_hf_golden(name);
        const at::Tensor packed =
            logits_of(golden.architecture, golden.seed, batch_of(golden), DType::kFloat32);
        for (std::int64_t row = 0; row < golden.batch; ++row) {
            const auto begin = golden.documents.begin() + row * golden.sequence;
            for (std::int64_t first = 0; first < golden.sequence;) {
                std::int64_t last = first;
                while (last < golden.sequence && begin[last] == begin[first]) ++last;
                const auto part = [&](const at::Tensor& all) {
                    return all.narrow(0, row, 1).narrow(1, first, last - first);
                };
                const MicroBatch alone{.tokens = part(integers(golden.tokens, golden)),
                                       .targets = {},
                                       .training = false};
                expect_close(part(packed),
                             logits_of(golden.architecture, golden.seed, alone, DType::kFloat32),
                             kTolerance, name);
                first = last;
            }
        }
    }
}

// https://github.com/NovaSky-AI/SkyRL/issues/1709,
// https://github.com/EvolvingLMMs-Lab/lmms-engine/pull/185: a table of rotary positions that is a
// buffer of the module was left uninitialised, or cast to a type that cannot count to 257.
TEST(RotaryTable, IsNeitherUninitialisedMemoryNorEverCast) {
    const spec::Llama llama{.vocab_size = 5,
                            .padded_vocab_size = 5,
                            .d_model = 16,
                            .num_heads = 2,
                            .num_kv_heads = 1,
                            .head_size = 8,
                            .num_layers = 1,
                            .d_ff = 8};
    const auto run = [&](bool cast) {
        const at::NoGradGuard no_grad;
        StageRig rig(make_model(llama), 1);
        if (cast) rig.stage().set_buffer_type(at::kBFloat16);
        return rig.stage().forward(random_tensor({1, 300, 16}, 1), {});
    };
    const at::Tensor expected = run(false);
    for (std::int64_t size = 16; size <= (1 << 20); size *= 2) {  // what is freed holds NaN
        at::zeros({size}).fill_(std::numeric_limits<float>::quiet_NaN());
    }
    EXPECT_FALSE(expected.isnan().any().item<bool>());
    EXPECT_TRUE(run(false).equal(expected));
    EXPECT_TRUE(run(true).equal(expected));
}

}  // namespace
}  // namespace fullshard::model
