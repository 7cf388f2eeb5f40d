#include "checkpoint/exchange/gguf_architecture.h"

#include "base/error.h"
#include "checkpoint/format/gguf_weights.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::checkpoint {
namespace {

using Json = nlohmann::json;

/// A key of the metadata behind "llama." or "gpt2.", and that of config.json for the same thing.
struct KeyName {
    std::string_view gguf;
    std::string_view config;
};
constexpr std::array kLlamaKeys{KeyName{"context_length", "max_position_embeddings"},
                                KeyName{"embedding_length", "hidden_size"},
                                KeyName{"feed_forward_length", "intermediate_size"},
                                KeyName{"block_count", "num_hidden_layers"},
                                KeyName{"attention.head_count", "num_attention_heads"},
                                KeyName{"attention.head_count_kv", "num_key_value_heads"},
                                KeyName{"attention.key_length", "head_dim"},
                                KeyName{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
                                KeyName{"rope.freq_base", "rope_theta"}};
constexpr std::array kGpt2Keys{KeyName{"context_length", "n_positions"},
                               KeyName{"embedding_length", "n_embd"},
                               KeyName{"feed_forward_length", "n_inner"},
                               KeyName{"block_count", "n_layer"},
                               KeyName{"attention.head_count", "n_head"},
                               KeyName{"attention.layer_norm_epsilon", "layer_norm_epsilon"}};
constexpr std::array kScalingKeys{
    KeyName{"rope.scaling.factor", "factor"},
    KeyName{"rope.scaling.original_context_length", "original_max_position_embeddings"},
    KeyName{"rope.scaling.yarn_beta_fast", "beta_fast"},
    KeyName{"rope.scaling.yarn_beta_slow", "beta_slow"}};
constexpr std::string_view kFrequencyFactors = "rope_freqs.weight";

/// The file keeps float32 of what was written in decimals: the shortest decimals that give it back.
double decimal_of(double value) {
    const auto single = static_cast<float>(value);
    if (static_cast<double>(single) != value) return value;
    return std::strtod(fmt::format("{}", single).c_str(), nullptr);
}

struct ToJson {
    Json operator()(double value) const {
        // JSON has no such numbers; as a text they are refused where a number has to be.
        if (!std::isfinite(value)) return "not finite";
        return decimal_of(value);
    }
    Json operator()(const GgufList&) const { return Json::array(); }
    template <typename T>
    Json operator()(const T& value) const {
        return value;
    }
};

class Metadata {
  public:
    Metadata(const GgufHeader& header, std::string family)
        : header_(header), family_(std::move(family)) {}

    /// Null when there is none.
    Json value(std::string_view key) const {
        const GgufValue* found = header_.find(fmt::format("{}.{}", family_, key));
        return found == nullptr ? Json() : std::visit(ToJson(), *found);
    }
    void copy(std::span<const KeyName> keys, Json& config) const {
        for (const KeyName& key : keys) {
            if (Json found = value(key.gguf); !found.is_null()) config[key.config] = found;
        }
    }
    /// The tokenizer's list counts, then a key, then the rows of the token table.
    Json vocab_size() const {
        const GgufValue* tokens = header_.find("tokenizer.ggml.tokens");
        const auto* list = tokens == nullptr ? nullptr : std::get_if<GgufList>(tokens);
        if (list != nullptr) return list->count;
        if (Json key = value("vocab_size"); !key.is_null()) return key;
        const GgufTensor* table = tensor("token_embd.weight");
        return table == nullptr ? Json() : Json(table->shape.front());
    }
    const GgufTensor* tensor(std::string_view name) const {
        const auto found = std::ranges::find(header_.tensors, name, &GgufTensor::name);
        return found == header_.tensors.end() ? nullptr : &*found;
    }

  private:
    const GgufHeader& header_;
    std::string family_;
};

/// The rope_scaling of config.json.
Json scaling_of(const Metadata& metadata) {
    Json type = metadata.value("rope.scaling.type");
    if (type.is_null() || type == "none") return {};
    Json scaling = {{"rope_type", type}};
    metadata.copy(kScalingKeys, scaling);
    const Json attention = metadata.value("rope.scaling.attn_factor");
    const Json& factor = scaling["factor"];
    if (type == "yarn" && attention.is_number() && factor.is_number() &&
        attention.get<double>() != 1.0) {
        // llama.cpp multiplies the published factor by it.
        scaling["attention_factor"] =
            attention.get<double>() * (0.1 * std::log(factor.get<double>()) + 1.0);
    }
    return scaling;
}

Json llama_config(const Metadata& metadata, std::string_view origin) {
    Json config = {{"model_type", "llama"}, {"rms_norm_eps", nullptr}};
    metadata.copy(kLlamaKeys, config);
    config["rope_scaling"] = scaling_of(metadata);
    if (config["rms_norm_eps"].is_null()) {
        throw DataError(
            fmt::format("{}: llama.attention.layer_norm_rms_epsilon is missing", origin));
    }
    if (const Json experts = metadata.value("expert_count"); !experts.is_null() && experts != 0) {
        throw DataError(
            fmt::format("{}: llama.expert_count = {}: mixtures of experts are not "
                        "supported",
                        origin, experts.dump()));
    }
    const Json values = metadata.value("attention.value_length");
    const Json keys = metadata.value("attention.key_length");
    if (!values.is_null() && !keys.is_null() && values != keys) {
        throw DataError(
            fmt::format("{}: llama.attention.value_length differs from key_length", origin));
    }
    return config;
}

/// A tied head is left out, or, as older converters of GPT-2 do, stored as a copy of the table.
bool ties_head(const PosixFile& file, const Metadata& metadata) {
    constexpr std::int64_t kAtOnce = std::int64_t{1} << 20;
    const GgufTensor* head = metadata.tensor("output.weight");
    const GgufTensor* table = metadata.tensor("token_embd.weight");
    if (head == nullptr) return true;
    if (table == nullptr || head->type != table->type || head->shape != table->shape) return false;
    std::vector<std::byte> left, right;
    for (std::int64_t begin = 0; begin < head->bytes(); begin += kAtOnce) {
        const auto count = static_cast<std::size_t>(std::min(kAtOnce, head->bytes() - begin));
        left.resize(count);
        right.resize(count);
        file.read(head->file_offset + begin, left);
        file.read(table->file_offset + begin, right);
        if (left != right) return false;
    }
    return true;
}

/// Llama 3's rule: how many times slower each pair of a head turns.
std::vector<double> frequency_factors(const spec::Llama& model, const spec::Rope& rope) {
    std::vector<double> factors;
    const auto original = static_cast<double>(rope.original_positions);
    for (std::int64_t pair = 0; pair < model.head_size / 2; ++pair) {
        const double exponent =
            2.0 * static_cast<double>(pair) / static_cast<double>(model.head_size);
        const double turns =
            original / (2.0 * std::numbers::pi * std::pow(model.rope.theta, exponent));
        const double ramp =
            (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        const double kept = std::clamp(ramp, 0.0, 1.0);
        factors.push_back(1.0 / ((1.0 - kept) / rope.factor + kept));
    }
    return factors;
}

/// The file has the outcome of Llama 3's scaling, a factor for each pair, and not the rule: takes
/// the one published rule (original length 8192, factors 1 and 4) and compares all it gives.
spec::Rope rope_of_factors(const std::filesystem::path& path, const spec::Llama& model) {
    GgufWeights weights(path);
    std::vector<float> factors(static_cast<std::size_t>(model.head_size / 2));
    weights.read(kFrequencyFactors, 0, factors);
    spec::Rope rope = model.rope;
    rope.scaling = spec::Rope::Scaling::kLlama3;
    rope.factor = *std::ranges::max_element(factors);
    rope.original_positions = 8192;
    rope.low_freq_factor = 1.0;
    rope.high_freq_factor = 4.0;
    constexpr double kTolerance = 1e-4;  // of a factor, computed in float32 by the writer
    const auto near = [](double expected, double found) {
        return std::abs(found / expected - 1.0) < kTolerance;
    };
    if (!std::isfinite(rope.factor) || rope.factor < 1.0 ||
        !std::ranges::equal(frequency_factors(model, rope), factors, near)) {
        throw DataError(fmt::format(
            "{}: {} are not those of Llama 3's scaling with original length 8192 and factors 1 "
            "and 4: import the safetensors files, whose config.json says how they were made",
            path.string(), kFrequencyFactors));
    }
    return rope;
}

}  // namespace

std::optional<spec::Architecture> architecture_of_gguf(const std::filesystem::path& path) {
    const PosixFile file = PosixFile::open(path);
    const GgufHeader header = read_gguf_header(file);
    const GgufValue* value = header.find("general.architecture");
    const auto* family = value == nullptr ? nullptr : std::get_if<std::string>(value);
    if (family == nullptr || (*family != "llama" && *family != "gpt2")) return std::nullopt;
    const Metadata metadata(header, *family);
    Json config;
    if (*family == "llama") {
        config = llama_config(metadata, path.string());
    } else {
        config = {{"model_type", "gpt2"}};
        metadata.copy(kGpt2Keys, config);
    }
    config["vocab_size"] = metadata.vocab_size();
    config["tie_word_embeddings"] = ties_head(file, metadata);
    spec::Architecture architecture =
        spec::parse_hf_config(config.dump(-1, ' ', false, Json::error_handler_t::replace),
                              fmt::format("{}, its metadata as config.json", path.string()));
    auto* llama = std::get_if<spec::Llama>(&architecture);
    if (llama == nullptr) return architecture;
    if (const Json rotated = metadata.value("rope.dimension_count");
        !rotated.is_null() && rotated != llama->head_size) {
        throw DataError(fmt::format("{}: llama.rope.dimension_count = {} is not the head size, {}",
                                    path.string(), rotated.dump(), llama->head_size));
    }
    if (const GgufTensor* factors = metadata.tensor(kFrequencyFactors)) {
        if (factors->shape != std::vector<std::int64_t>{llama->head_size / 2} ||
            llama->rope.scaling != spec::Rope::Scaling::kNone) {
            throw DataError(
                fmt::format("{}: {} does not fit the metadata", path.string(), kFrequencyFactors));
        }
        llama->rope = rope_of_factors(path, *llama);
    }
    return architecture;
}

}  // namespace fullshard::checkpoint
