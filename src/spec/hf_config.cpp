#include "base/error.h"
#include "spec/architecture.h"
#include "spec/hf_config_fields.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace fullshard::spec {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Large enough for any model, and small enough that no product of sizes of one leaves 63 bits.
constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 28;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 30;
constexpr std::int64_t kMostWidth = std::int64_t{1} << 20;
constexpr std::int64_t kMostInnerWidth = std::int64_t{1} << 22;
constexpr std::int64_t kMostLayers = std::int64_t{1} << 14;
constexpr double kSmallest = 1e-12;
constexpr double kLargest = 1e12;
constexpr double kLeastTheta = 1.0 + 1e-6;
constexpr double kDefaultTheta = 10'000.0;

struct ScalingName {
    Rope::Scaling scaling;
    std::string_view name;
};
constexpr std::array kScalings{
    ScalingName{Rope::Scaling::kNone, "default"}, ScalingName{Rope::Scaling::kLinear, "linear"},
    ScalingName{Rope::Scaling::kDynamic, "dynamic"}, ScalingName{Rope::Scaling::kLlama3, "llama3"},
    ScalingName{Rope::Scaling::kYarn, "yarn"}};

void require_divides(const HfFields& fields, std::string_view key, std::int64_t divisor,
                     std::string_view of, std::int64_t number) {
    if (number % divisor != 0)
        fields.wrong(key, fmt::format("does not divide {} = {}", of, number));
}

Gpt2 parse_gpt2(const HfFields& fields) {
    Gpt2 model;
    model.vocab_size = fields.count({"vocab_size"}, {1, kMostVocabulary});
    model.padded_vocab_size = model.vocab_size;
    model.max_positions =
        fields.count({"n_positions", "max_position_embeddings"}, {1, kMostPositions});
    model.d_model = fields.count({"n_embd", "hidden_size"}, {1, kMostWidth});
    model.num_heads = fields.count({"n_head", "num_attention_heads"}, {1, kMostWidth});
    model.num_layers = fields.count({"n_layer", "num_hidden_layers"}, {1, kMostLayers});
    model.d_ff = fields.count({"n_inner"}, {1, kMostInnerWidth}, 4 * model.d_model);
    model.norm_eps = fields.number("layer_norm_epsilon", kSmallest, 1.0, model.norm_eps);
    model.init_deviation = fields.number("initializer_range", 0.0, 1.0, model.init_deviation);
    model.tie_embeddings = fields.flag("tie_word_embeddings", true);
    require_divides(fields, "n_head", model.num_heads, "n_embd", model.d_model);

    model.dropout = fields.number("resid_pdrop", 0.0, 1.0, model.dropout);
    for (const char* key : {"embd_pdrop", "attn_pdrop"}) {
        if (fields.number(key, 0.0, 1.0, 0.1) != model.dropout) {
            fields.wrong(key, fmt::format("differs from resid_pdrop = {}: one value is supported",
                                          model.dropout));
        }
    }
    if (model.dropout >= 1.0) fields.wrong("resid_pdrop", "must be less than 1");
    const std::string activation = fields.text("activation_function", "gelu_new");
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
        fields.wrong("activation_function",
                     "is not supported, only gelu_new and gelu_pytorch_tanh are");
    }
    fields.only("scale_attn_weights", true);
    fields.only("scale_attn_by_inverse_layer_idx", false);
    fields.only("add_cross_attention", false);
    return model;
}

/// Both spellings of one thing must say the same where both are there.
void compare_spellings(const HfFields& fields, const Json& one, const Json& other) {
    for (const auto& [key, value] : one.items()) {
        const auto found = other.find(key);
        if (found != other.end() && *found != value) {
            fields.wrong("rope_scaling", fmt::format("and rope_parameters differ in {}", key));
        }
    }
}

void parse_scaling(const HfFields& fields, std::int64_t max_positions, Rope& rope) {
    const std::string_view key = fields.has("rope_type") ? "rope_type" : "type";
    const std::string name = fields.text(key, "default");
    const auto* found = std::ranges::find(kScalings, name, &ScalingName::name);
    if (found == kScalings.end()) {
        fields.wrong(key, "is not supported, only default, linear, dynamic, llama3 and yarn are");
        return;
    }
    rope.scaling = found->scaling;
    fields.only("partial_rotary_factor", 1.0);
    if (rope.scaling == Rope::Scaling::kNone) return;
    rope.factor = fields.number("factor", 1.0, kLargest, std::nullopt);
    if (rope.scaling == Rope::Scaling::kLinear) return;
    // transformers takes max_position_embeddings for the dynamic variant, whatever else is there.
    rope.original_positions = max_positions;
    if (rope.scaling == Rope::Scaling::kDynamic) return;
    rope.original_positions =
        fields.count({"original_max_position_embeddings"}, {1, kMostPositions}, max_positions);
    if (rope.scaling == Rope::Scaling::kLlama3) {
        rope.low_freq_factor = fields.number("low_freq_factor", kSmallest, kLargest, std::nullopt);
        rope.high_freq_factor =
            fields.number("high_freq_factor", kSmallest, kLargest, std::nullopt);
        if (rope.high_freq_factor <= rope.low_freq_factor) {
            fields.wrong("high_freq_factor", "must be greater than low_freq_factor");
        }
        return;
    }
    rope.beta_fast = fields.number("beta_fast", kSmallest, kLargest, rope.beta_fast);
    rope.beta_slow = fields.number("beta_slow", kSmallest, kLargest, rope.beta_slow);
    if (rope.beta_fast <= rope.beta_slow) {
        fields.wrong("beta_fast",
                     fmt::format("must be greater than beta_slow = {}", rope.beta_slow));
    }
    rope.attention_factor = fields.number("attention_factor", kSmallest, kLargest, 0.0);
    fields.only("truncate", true);
    for (const char* of_deepseek : {"mscale", "mscale_all_dim"}) {
        if (fields.has(of_deepseek)) fields.wrong(of_deepseek, "is not supported");
    }
}

Rope parse_rope(const HfFields& fields, std::int64_t max_positions,
                std::vector<std::string>& mistakes) {
    Rope rope;
    const Json* scaling = fields.find("rope_scaling");
    const Json* parameters = fields.find("rope_parameters");
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
        const Json* value = fields.find(key);
        if (value == nullptr || value->is_object()) continue;
        fields.wrong(key, "must be an object");
        return rope;
    }
    if (scaling != nullptr && parameters != nullptr) {
        compare_spellings(fields, *scaling, *parameters);
    }
    fields.only("partial_rotary_factor", 1.0);
    rope.theta = fields.number("rope_theta", kLeastTheta, kLargest, kDefaultTheta);
    if (parameters != nullptr) {
        const HfFields inner(*parameters, "rope_parameters.", mistakes);
        const double theta = inner.number("rope_theta", kLeastTheta, kLargest, rope.theta);
        if (fields.has("rope_theta") && theta != rope.theta) {
            inner.wrong("rope_theta", fmt::format("differs from rope_theta = {}", rope.theta));
        }
        rope.theta = theta;
    }
    if (scaling != nullptr) {
        const HfFields inner(*scaling, "rope_scaling.", mistakes);
        rope.theta = inner.number("rope_theta", kLeastTheta, kLargest, rope.theta);
        parse_scaling(inner, max_positions, rope);
    } else if (parameters != nullptr) {
        parse_scaling(HfFields(*parameters, "rope_parameters.", mistakes), max_positions, rope);
    }
    return rope;
}

Llama parse_llama(const HfFields& fields, std::vector<std::string>& mistakes) {
    Llama model;
    model.vocab_size = fields.count({"vocab_size"}, {1, kMostVocabulary});
    model.padded_vocab_size = model.vocab_size;
    model.max_positions = fields.count({"max_position_embeddings"}, {1, kMostPositions});
    model.d_model = fields.count({"hidden_size"}, {1, kMostWidth});
    model.d_ff = fields.count({"intermediate_size"}, {1, kMostInnerWidth});
    model.num_layers = fields.count({"num_hidden_layers"}, {1, kMostLayers});
    model.num_heads = fields.count({"num_attention_heads"}, {1, kMostWidth});
    model.num_kv_heads = fields.count({"num_key_value_heads"}, {1, kMostWidth}, model.num_heads);
    if (!fields.has("head_dim")) {
        require_divides(fields, "num_attention_heads", model.num_heads, "hidden_size",
                        model.d_model);
    }
    model.head_size = fields.count({"head_dim"}, {1, kMostWidth},
                                   std::max<std::int64_t>(1, model.d_model / model.num_heads));
    if (model.num_heads * model.head_size > kMostInnerWidth) {
        fields.wrong("head_dim", fmt::format("times num_attention_heads = {} is beyond {}",
                                             model.num_heads, kMostInnerWidth));
    }
    if (model.head_size % 2 != 0) {
        fields.wrong("head_dim", fmt::format("gives an odd head size, {}", model.head_size));
    }
    require_divides(fields, "num_key_value_heads", model.num_kv_heads, "num_attention_heads",
                    model.num_heads);
    model.norm_eps = fields.number("rms_norm_eps", kSmallest, 1.0, 1e-6);
    model.init_deviation = fields.number("initializer_range", 0.0, 1.0, model.init_deviation);
    model.tie_embeddings = fields.flag("tie_word_embeddings", false);
    model.rope = parse_rope(fields, model.max_positions, mistakes);

    const std::string activation = fields.text("hidden_act", "silu");
    if (activation != "silu" && activation != "swish") {
        fields.wrong("hidden_act", "is not supported, only silu is");
    }
    fields.only("attention_bias", false);
    fields.only("mlp_bias", false);
    fields.only("attention_dropout", 0.0);
    fields.only("pretraining_tp", 1);
    fields.only("sliding_window", nullptr);
    return model;
}

OrderedJson scaling_json(const Rope& rope) {
    const auto* name = std::ranges::find(kScalings, rope.scaling, &ScalingName::scaling);
    OrderedJson json = {{"rope_type", name->name}};
    if (rope.scaling == Rope::Scaling::kNone) return json;
    json["factor"] = rope.factor;
    if (rope.scaling == Rope::Scaling::kLlama3 || rope.scaling == Rope::Scaling::kYarn) {
        json["original_max_position_embeddings"] = rope.original_positions;
    }
    if (rope.scaling == Rope::Scaling::kLlama3) {
        json["low_freq_factor"] = rope.low_freq_factor;
        json["high_freq_factor"] = rope.high_freq_factor;
    }
    if (rope.scaling == Rope::Scaling::kYarn) {
        json["beta_fast"] = rope.beta_fast;
        json["beta_slow"] = rope.beta_slow;
        if (rope.attention_factor > 0.0) json["attention_factor"] = rope.attention_factor;
    }
    return json;
}

OrderedJson to_json(const Gpt2& model) {
    return {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"vocab_size", model.vocab_size},
            {"n_positions", model.max_positions},
            {"n_embd", model.d_model},
            {"n_layer", model.num_layers},
            {"n_head", model.num_heads},
            {"n_inner", model.d_ff},
            {"activation_function", "gelu_new"},
            {"resid_pdrop", model.dropout},
            {"embd_pdrop", model.dropout},
            {"attn_pdrop", model.dropout},
            {"layer_norm_epsilon", model.norm_eps},
            {"initializer_range", model.init_deviation},
            {"tie_word_embeddings", model.tie_embeddings}};
}

OrderedJson to_json(const Llama& model) {
    const Rope& rope = model.rope;
    const bool dynamic = rope.scaling == Rope::Scaling::kDynamic;
    OrderedJson json = {
        {"architectures", {"LlamaForCausalLM"}},
        {"model_type", "llama"},
        {"vocab_size", model.vocab_size},
        // The dynamic variant knows the length of pretraining by this name only.
        {"max_position_embeddings", dynamic ? rope.original_positions : model.max_positions},
        {"hidden_size", model.d_model},
        {"intermediate_size", model.d_ff},
        {"num_hidden_layers", model.num_layers},
        {"num_attention_heads", model.num_heads},
        {"num_key_value_heads", model.num_kv_heads},
        {"head_dim", model.head_size},
        {"hidden_act", "silu"},
        {"rms_norm_eps", model.norm_eps},
        {"initializer_range", model.init_deviation},
        {"attention_bias", false},
        {"attention_dropout", 0.0},
        {"mlp_bias", false},
        {"tie_word_embeddings", model.tie_embeddings},
        {"rope_theta", rope.theta}};
    // Version 4 reads the first, version 5 the second.
    OrderedJson scaling = scaling_json(rope);
    json["rope_scaling"] = rope.scaling == Rope::Scaling::kNone ? OrderedJson() : scaling;
    scaling["rope_theta"] = rope.theta;
    json["rope_parameters"] = std::move(scaling);
    return json;
}

/// transformers' own default is the last token of the published vocabulary, wrong for any other.
void leave_out_special_tokens(OrderedJson& json, std::int64_t vocab_size, std::int64_t last_used) {
    if (vocab_size > last_used) return;
    json["bos_token_id"] = nullptr;
    json["eos_token_id"] = nullptr;
}

}  // namespace

bool has_known_model_type(std::string_view json) {
    const Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
    std::vector<std::string> mistakes;
    const std::string type = HfFields(document, "", mistakes).text("model_type", "");
    return type == "gpt2" || type == "llama";
}

Architecture parse_hf_config(std::string_view json, std::string_view origin) {
    const auto refuse = [&](std::string_view problem) {
        throw DataError(fmt::format("{}: {}", origin, problem));
    };
    const Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
    if (document.is_discarded() || !document.is_object()) refuse("is no JSON object");
    std::vector<std::string> mistakes;
    const HfFields fields(document, "", mistakes);
    Architecture architecture;
    if (const std::string type = fields.text("model_type", ""); type == "gpt2") {
        architecture = parse_gpt2(fields);
    } else if (type == "llama") {
        architecture = parse_llama(fields, mistakes);
    } else if (mistakes.empty()) {
        fields.wrong("model_type", "is none of gpt2 and llama");
    }
    if (!mistakes.empty()) refuse(fmt::format("{}", fmt::join(mistakes, "; ")));
    return architecture;
}

std::string to_hf_config(const Architecture& architecture, DType weights) {
    constexpr std::int64_t kLastOfGpt2 = 50256;
    constexpr std::int64_t kLastOfLlama = 2;
    OrderedJson json = std::visit([](const auto& model) { return to_json(model); }, architecture);
    if (const auto* gpt2 = std::get_if<Gpt2>(&architecture)) {
        leave_out_special_tokens(json, gpt2->vocab_size, kLastOfGpt2);
    } else {
        leave_out_special_tokens(json, std::get<Llama>(architecture).vocab_size, kLastOfLlama);
    }
    const char* type = weights == DType::kBFloat16  ? "bfloat16"
                       : weights == DType::kFloat16 ? "float16"
                                                    : "float32";
    json["torch_dtype"] = type;  // version 4
    json["dtype"] = type;
    return json.dump(2) + "\n";
}

}  // namespace fullshard::spec
