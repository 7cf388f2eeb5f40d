#include "checkpoint/exchange/mapping.h"

#include "base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>

namespace fullshard::checkpoint {
namespace {

using enum Arrangement;

/// One parameter, "{}" for the number of its layer. Our names are those of transformers.
struct Row {
    std::string_view ours;
    Arrangement in_transformers;
    std::string_view llama_cpp;
    Arrangement in_llama_cpp;
    std::string_view llmc;
};

constexpr std::array kGpt2{
    Row{"transformer.wte.weight", kPaddedRows, "token_embd.weight", kPaddedRows, "wte"},
    Row{"transformer.wpe.weight", kSame, "position_embd.weight", kSame, "wpe"},
    Row{"transformer.h.{}.ln_1.weight", kSame, "blk.{}.attn_norm.weight", kSame, "ln1w.{}"},
    Row{"transformer.h.{}.ln_1.bias", kSame, "blk.{}.attn_norm.bias", kSame, "ln1b.{}"},
    Row{"transformer.h.{}.attn.c_attn.weight", kTransposed, "blk.{}.attn_qkv.weight", kSame,
        "qkvw.{}"},
    Row{"transformer.h.{}.attn.c_attn.bias", kSame, "blk.{}.attn_qkv.bias", kSame, "qkvb.{}"},
    Row{"transformer.h.{}.attn.c_proj.weight", kTransposed, "blk.{}.attn_output.weight", kSame,
        "attprojw.{}"},
    Row{"transformer.h.{}.attn.c_proj.bias", kSame, "blk.{}.attn_output.bias", kSame,
        "attprojb.{}"},
    Row{"transformer.h.{}.ln_2.weight", kSame, "blk.{}.ffn_norm.weight", kSame, "ln2w.{}"},
    Row{"transformer.h.{}.ln_2.bias", kSame, "blk.{}.ffn_norm.bias", kSame, "ln2b.{}"},
    Row{"transformer.h.{}.mlp.c_fc.weight", kTransposed, "blk.{}.ffn_up.weight", kSame, "fcw.{}"},
    Row{"transformer.h.{}.mlp.c_fc.bias", kSame, "blk.{}.ffn_up.bias", kSame, "fcb.{}"},
    Row{"transformer.h.{}.mlp.c_proj.weight", kTransposed, "blk.{}.ffn_down.weight", kSame,
        "fcprojw.{}"},
    Row{"transformer.h.{}.mlp.c_proj.bias", kSame, "blk.{}.ffn_down.bias", kSame, "fcprojb.{}"},
    Row{"transformer.ln_f.weight", kSame, "output_norm.weight", kSame, "lnfw"},
    Row{"transformer.ln_f.bias", kSame, "output_norm.bias", kSame, "lnfb"},
    Row{"lm_head.weight", kPaddedRows, "output.weight", kPaddedRows, ""},
};

constexpr std::array kLlama{
    Row{"model.embed_tokens.weight", kPaddedRows, "token_embd.weight", kPaddedRows, ""},
    Row{"model.layers.{}.self_attn.q_proj.weight", kSame, "blk.{}.attn_q.weight", kRotaryRows, ""},
    Row{"model.layers.{}.self_attn.k_proj.weight", kSame, "blk.{}.attn_k.weight", kRotaryRows, ""},
    Row{"model.layers.{}.self_attn.v_proj.weight", kSame, "blk.{}.attn_v.weight", kSame, ""},
    Row{"model.layers.{}.self_attn.o_proj.weight", kSame, "blk.{}.attn_output.weight", kSame, ""},
    Row{"model.layers.{}.mlp.gate_proj.weight", kSame, "blk.{}.ffn_gate.weight", kSame, ""},
    Row{"model.layers.{}.mlp.up_proj.weight", kSame, "blk.{}.ffn_up.weight", kSame, ""},
    Row{"model.layers.{}.mlp.down_proj.weight", kSame, "blk.{}.ffn_down.weight", kSame, ""},
    Row{"model.layers.{}.input_layernorm.weight", kSame, "blk.{}.attn_norm.weight", kSame, ""},
    Row{"model.layers.{}.post_attention_layernorm.weight", kSame, "blk.{}.ffn_norm.weight", kSame,
        ""},
    Row{"model.norm.weight", kSame, "output_norm.weight", kSame, ""},
    Row{"lm_head.weight", kPaddedRows, "output.weight", kPaddedRows, ""},
};

/// Causal masks in files of older versions of transformers, tables of rotary angles in those and in
/// llama.cpp's.
constexpr std::array<std::string_view, 5> kComputed{"h.{}.attn.bias", "h.{}.attn.masked_bias",
                                                    "layers.{}.self_attn.rotary_emb.inv_freq",
                                                    "rotary_emb.inv_freq", "rope_freqs.weight"};

std::span<const Row> table_of(const spec::Architecture& architecture) {
    return std::holds_alternative<spec::Gpt2>(architecture) ? std::span<const Row>(kGpt2)
                                                            : std::span<const Row>(kLlama);
}

std::string with_layer(std::string_view pattern, const std::optional<std::int64_t>& layer) {
    const auto gap = pattern.find("{}");
    if (gap == pattern.npos) return std::string(pattern);
    return fmt::format("{}{}{}", pattern.substr(0, gap), layer.value(), pattern.substr(gap + 2));
}

/// Their name, and where our elements are in it.
std::pair<std::string_view, Arrangement> column_of(const Row& row, NamesOf names) {
    const Arrangement padded = row.in_transformers == kPaddedRows ? kPaddedRows : kSame;
    switch (names) {
        case NamesOf::kFullShard:
            return {row.ours, padded};
        case NamesOf::kTransformers:
            return {row.ours, row.in_transformers};
        case NamesOf::kLlamaCpp:
            return {row.llama_cpp, row.in_llama_cpp};
        case NamesOf::kLlmc:
            return {row.llmc, padded};
    }
    throw LogicError("unknown names");
}

MappedTensor map_parameter(const spec::ParameterSpec& parameter,
                           const spec::Architecture& architecture, NamesOf names) {
    const LayerName ours = layer_name(parameter.name);
    const auto table = table_of(architecture);
    const auto row = std::ranges::find(table, ours.pattern, &Row::ours);
    ensure(row != table.end(), "every parameter of a known family is in its table");
    const auto [theirs, arrangement] = column_of(*row, names);
    if (theirs.empty()) {
        throw UsageError(fmt::format("files of llm.c have no {}: they hold GPT-2 with a tied head",
                                     parameter.name));
    }
    MappedTensor mapped{.ours = parameter.name,
                        .shape = parameter.shape,
                        .theirs = with_layer(theirs, ours.layer),
                        .their_shape = parameter.shape,
                        .arrangement = arrangement};
    if (arrangement == kTransposed) std::ranges::reverse(mapped.their_shape);
    if (arrangement == kPaddedRows) mapped.their_shape.front() = vocab_size_of(architecture);
    return mapped;
}

}  // namespace

std::string_view name_of(Arrangement arrangement) {
    switch (arrangement) {
        case kSame:
            return "as it is";
        case kTransposed:
            return "transposed";
        case kRotaryRows:
            return "rotary halves";
        case kPaddedRows:
            return "padded rows";
    }
    throw LogicError("unknown arrangement");
}

std::vector<MappedTensor> map_parameters(const spec::Architecture& architecture, NamesOf names) {
    std::vector<MappedTensor> mapped;
    for (const spec::StageSpec& stage : describe(architecture).stages) {
        for (const spec::ParameterSpec& parameter : stage.parameters) {
            if (!parameter.tied_to.empty()) continue;
            mapped.push_back(map_parameter(parameter, architecture, names));
        }
    }
    return mapped;
}

std::string_view without_model_prefix(std::string_view name) {
    for (const std::string_view prefix : {"transformer.", "model."}) {
        if (name.starts_with(prefix)) return name.substr(prefix.size());
    }
    return name;
}

std::string_view head_name(NamesOf names) {
    return names == NamesOf::kLlamaCpp ? "output.weight" : "lm_head.weight";
}

bool is_computed(std::string_view theirs) {
    const std::string pattern = layer_name(without_model_prefix(theirs)).pattern;
    return std::ranges::find(kComputed, pattern) != kComputed.end();
}

std::int64_t vocab_size_of(const spec::Architecture& architecture) {
    return std::visit([](const auto& model) { return model.vocab_size; }, architecture);
}

std::int64_t head_size_of(const spec::Architecture& architecture) {
    if (const auto* gpt2 = std::get_if<spec::Gpt2>(&architecture)) {
        return gpt2->d_model / gpt2->num_heads;
    }
    return std::get<spec::Llama>(architecture).head_size;
}

bool ties_embeddings(const spec::Architecture& architecture) {
    return std::visit([](const auto& model) { return model.tie_embeddings; }, architecture);
}

LayerName layer_name(std::string_view name) {
    for (std::size_t begin = 0; begin < name.size();) {
        const std::size_t end = std::min(name.find('.', begin), name.size());
        std::int64_t number = 0;
        const auto [rest, error] = std::from_chars(name.data() + begin, name.data() + end, number);
        if (end > begin && error == std::errc() && rest == name.data() + end && number >= 0) {
            return {fmt::format("{}{{}}{}", name.substr(0, begin), name.substr(end)), number};
        }
        begin = end + 1;
    }
    return {std::string(name), std::nullopt};
}

}  // namespace fullshard::checkpoint
