#include "train/architecture.h"

#include "base/error.h"
#include "base/round_up.h"
#include "checkpoint/exchange/architecture.h"
#include "config/key_table.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace fullshard::train {

namespace {

constexpr std::pair<config::RopeScaling, spec::Rope::Scaling> kRopeScalings[] = {
    {config::RopeScaling::kNone, spec::Rope::Scaling::kNone},
    {config::RopeScaling::kLinear, spec::Rope::Scaling::kLinear},
    {config::RopeScaling::kDynamic, spec::Rope::Scaling::kDynamic},
    {config::RopeScaling::kLlama3, spec::Rope::Scaling::kLlama3},
    {config::RopeScaling::kYarn, spec::Rope::Scaling::kYarn}};

std::int64_t or_else(std::int64_t value, std::int64_t fallback) {
    return value > 0 ? value : fallback;
}

spec::Rope rope_of(const config::Model& model, std::int64_t max_positions) {
    spec::Rope rope{.theta = model.rope_theta,
                    .scaling = {},
                    .factor = model.rope_factor,
                    .original_positions = or_else(model.rope_original_positions, max_positions),
                    .low_freq_factor = model.rope_low_freq_factor,
                    .high_freq_factor = model.rope_high_freq_factor,
                    .beta_fast = model.rope_beta_fast,
                    .beta_slow = model.rope_beta_slow,
                    .attention_factor = model.rope_attention_factor};
    for (const auto& [key, scaling] : kRopeScalings) {
        if (key == model.rope_scaling) rope.scaling = scaling;
    }
    return rope;
}

/// What both families call the same.
template <typename Decoder>
config::Model common_keys(const Decoder& model, config::Family family) {
    config::Model keys{.family = family};
    keys.vocab_size = model.vocab_size;
    keys.d_model = model.d_model;
    keys.num_heads = model.num_heads;
    keys.num_layers = model.num_layers;
    keys.d_ff = model.d_ff;
    keys.max_positions = model.max_positions;
    keys.norm_eps = model.norm_eps;
    keys.init_deviation = model.init_deviation;
    keys.tie_embeddings = model.tie_embeddings;
    return keys;
}

/// What an architecture says in the keys of a deck.
config::Model keys_of(const spec::Gpt2& model) {
    config::Model keys = common_keys(model, config::Family::kGpt2);
    keys.dropout = model.dropout;
    return keys;
}

config::Model keys_of(const spec::Llama& model) {
    config::Model keys = common_keys(model, config::Family::kLlama);
    keys.num_kv_heads = model.num_kv_heads;
    keys.head_size = model.head_size;
    keys.rope_theta = model.rope.theta;
    for (const auto& [key, scaling] : kRopeScalings) {
        if (scaling == model.rope.scaling) keys.rope_scaling = key;
    }
    if (model.rope.scaling != spec::Rope::Scaling::kNone) {
        keys.rope_factor = model.rope.factor;
        keys.rope_original_positions = model.rope.original_positions;
        keys.rope_low_freq_factor = model.rope.low_freq_factor;
        keys.rope_high_freq_factor = model.rope.high_freq_factor;
        keys.rope_beta_fast = model.rope.beta_fast;
        keys.rope_beta_slow = model.rope.beta_slow;
        keys.rope_attention_factor = model.rope.attention_factor;
    }
    return keys;
}

/// Takes the values of `keys` for the deck's model keys that nothing sets, as set by `origin`.
void fill_in(config::Deck& deck, const config::Model& keys, const std::string& origin) {
    config::Deck given;
    given.model = keys;
    for (const config::Section& section : config::key_table()) {
        if (section.name != "model") continue;
        for (const config::Key& key : section.keys) {
            const std::string value = key.text(given);
            if (deck.origins.contains(key.name) || value == config::default_text(key)) continue;
            const auto problem = key.assign(deck, value);
            ensure(!problem, "what an architecture says, its key can hold");
            deck.origins[key.name] = origin;
        }
    }
}

spec::Architecture read_config(const std::string& path) {
    std::optional<spec::Architecture> found;
    try {
        found = checkpoint::architecture_of(path);
    } catch (const DataError& error) {
        throw DataError(fmt::format("model.config = {}: {}", path, error.what()));
    }
    if (found) return *found;
    throw UsageError(fmt::format(
        "model.config = {} describes no model of family gpt2 or llama: name a config.json, a "
        "folder with one, a GGUF file, a GPT-2 file of llm.c, or a checkpoint of such a model",
        path));
}

}  // namespace

std::optional<spec::Architecture> architecture_of(const config::Deck& deck) {
    const config::Model& model = deck.model;
    const std::int64_t padded = round_up(model.vocab_size, model.pad_vocab_to);
    const std::int64_t max_positions = or_else(model.max_positions, deck.data.sequence);
    if (model.family == config::Family::kGpt2) {
        return spec::Gpt2{.vocab_size = model.vocab_size,
                          .padded_vocab_size = padded,
                          .max_positions = max_positions,
                          .d_model = model.d_model,
                          .num_heads = model.num_heads,
                          .num_layers = model.num_layers,
                          .d_ff = model.d_ff,
                          .dropout = model.dropout,
                          .norm_eps = model.norm_eps,
                          .init_deviation = model.init_deviation,
                          .tie_embeddings = model.tie_embeddings};
    }
    if (model.family == config::Family::kLlama) {
        return spec::Llama{.vocab_size = model.vocab_size,
                           .padded_vocab_size = padded,
                           .max_positions = max_positions,
                           .d_model = model.d_model,
                           .num_heads = model.num_heads,
                           .num_kv_heads = or_else(model.num_kv_heads, model.num_heads),
                           .head_size = or_else(model.head_size, model.d_model / model.num_heads),
                           .num_layers = model.num_layers,
                           .d_ff = model.d_ff,
                           .norm_eps = model.norm_eps,
                           .init_deviation = model.init_deviation,
                           .tie_embeddings = model.tie_embeddings,
                           .rope = rope_of(model, max_positions)};
    }
    return std::nullopt;
}

config::Deck with_model_config(config::Deck deck) {
    if (!deck.model.config.empty()) {
        const std::string path = deck.model.config.string();
        const config::Model keys =
            std::visit([](const auto& model) { return keys_of(model); }, read_config(path));
        if (deck.origins.contains("model.family") && deck.model.family != keys.family) {
            throw UsageError(fmt::format(
                "model.family = {} ({}), but model.config = {} describes a model of family {}: "
                "drop one of the two keys",
                config::find_key("model.family")->text(deck),
                config::origin_of(deck, "model.family"), path,
                keys.family == config::Family::kGpt2 ? "gpt2" : "llama"));
        }
        fill_in(deck, keys, path);
    }
    if (deck.model.family == config::Family::kGpt2 && deck.model.config.empty()) {
        config::Model published;
        published.tie_embeddings = true;
        fill_in(deck, published, "model.family = gpt2");
    }
    return deck;
}

}  // namespace fullshard::train
