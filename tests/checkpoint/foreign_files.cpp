#include "checkpoint/foreign_files.h"

#include "checkpoint/little_endian.h"
#include "checkpoint/toy_checkpoint.h"

#include <fmt/format.h>

#include <functional>
#include <map>

namespace fullshard::checkpoint::toy {
namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    return at == text.npos ? text : text.replace(at, from.size(), to);
}

std::vector<spec::ParameterSpec> own_parameters(const spec::Architecture& architecture) {
    std::vector<spec::ParameterSpec> list;
    for (const auto& stage : describe(architecture).stages) {
        for (const auto& parameter : stage.parameters) {
            if (parameter.tied_to.empty()) list.push_back(parameter);
        }
    }
    return list;
}

/// Without rows of padding.
ForeignTensor cut(const spec::ParameterSpec& parameter) {
    ForeignTensor tensor{parameter.name, parameter.shape, values_of(parameter)};
    tensor.shape[0] -= parameter.padding_rows;
    tensor.values.resize(tensor.values.size() -
                         static_cast<std::size_t>(parameter.padding_numel()));
    return tensor;
}

ForeignTensor transposed(const ForeignTensor& tensor) {
    const auto rows = static_cast<std::size_t>(tensor.shape[0]);
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    ForeignTensor other{tensor.name, {tensor.shape[1], tensor.shape[0]}, tensor.values};
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
            other.values[c * rows + r] = tensor.values[r * columns + c];
        }
    }
    return other;
}

/// reshape(heads, 2, half, columns).swapaxes(1, 2), as llama.cpp's converter does.
void interleave(ForeignTensor& tensor, std::size_t head_size) {
    const auto rows = static_cast<std::size_t>(tensor.shape[0]);
    const auto columns = static_cast<std::size_t>(tensor.shape[1]);
    const std::size_t half = head_size / 2;
    const std::vector<float> ours = tensor.values;
    std::size_t to = 0;
    for (std::size_t head = 0; head < rows / head_size; ++head) {
        for (std::size_t k = 0; k < half; ++k) {
            for (std::size_t j = 0; j < 2; ++j) {
                for (std::size_t c = 0; c < columns; ++c) {
                    tensor.values[to++] = ours[((head * 2 + j) * half + k) * columns + c];
                }
            }
        }
    }
}

/// The converters' own renaming, part by part.
std::string name_in_llama_cpp(std::string name) {
    static const std::vector<std::pair<std::string, std::string>> kParts = {
        {"transformer.wte", "token_embd"},
        {"transformer.wpe", "position_embd"},
        {"transformer.ln_f", "output_norm"},
        {"transformer.h.", "blk."},
        {"ln_1", "attn_norm"},
        {"ln_2", "ffn_norm"},
        {"attn.c_attn", "attn_qkv"},
        {"attn.c_proj", "attn_output"},
        {"mlp.c_fc", "ffn_up"},
        {"mlp.c_proj", "ffn_down"},
        {"model.embed_tokens", "token_embd"},
        {"model.norm", "output_norm"},
        {"model.layers.", "blk."},
        {"post_attention_layernorm", "ffn_norm"},
        {"input_layernorm", "attn_norm"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"lm_head", "output"}};
    for (const auto& [from, to] : kParts) name = replaced(name, from, to);
    return name;
}

}  // namespace

spec::Gpt2 small_gpt2() {
    return {.vocab_size = 5,
            .padded_vocab_size = 8,
            .max_positions = 3,
            .d_model = 4,
            .num_heads = 2,
            .num_layers = 2,
            .d_ff = 16,
            .dropout = 0.0};
}

spec::Llama small_llama() {
    return {.vocab_size = 5,
            .padded_vocab_size = 5,
            .max_positions = 32,
            .d_model = 8,
            .num_heads = 2,
            .num_kv_heads = 1,
            .head_size = 6,
            .num_layers = 2,
            .d_ff = 10,
            .norm_eps = 1e-5};
}

std::vector<float> values_of(const spec::ParameterSpec& parameter) {
    const auto name = static_cast<float>(std::hash<std::string>()(parameter.name) % 1000);
    std::vector<float> values(static_cast<std::size_t>(parameter.numel()));
    const auto end = values.size() - static_cast<std::size_t>(parameter.padding_numel());
    for (std::size_t i = 0; i < end; ++i) values[i] = name + static_cast<float>(i) / 1024.0f + 1.0f;
    return values;
}

std::vector<ForeignTensor> of_fullshard(const spec::Architecture& architecture) {
    std::vector<ForeignTensor> tensors;
    for (const auto& parameter : own_parameters(architecture)) {
        tensors.push_back({parameter.name, parameter.shape, values_of(parameter)});
    }
    return tensors;
}

std::vector<ForeignTensor> of_transformers(const spec::Architecture& architecture) {
    std::vector<ForeignTensor> tensors;
    for (const auto& parameter : own_parameters(architecture)) {
        const ForeignTensor tensor = cut(parameter);
        const bool conv1d =
            parameter.name.find(".c_") != std::string::npos && parameter.name.ends_with(".weight");
        tensors.push_back(conv1d ? transposed(tensor) : tensor);
    }
    return tensors;
}

std::vector<ForeignTensor> of_llama_cpp(const spec::Architecture& architecture) {
    std::vector<ForeignTensor> tensors;
    for (const auto& parameter : own_parameters(architecture)) {
        ForeignTensor tensor = cut(parameter);
        if (tensor.name.ends_with("q_proj.weight") || tensor.name.ends_with("k_proj.weight")) {
            interleave(tensor,
                       static_cast<std::size_t>(std::get<spec::Llama>(architecture).head_size));
        }
        tensor.name = name_in_llama_cpp(tensor.name);
        tensors.push_back(std::move(tensor));
    }
    return tensors;
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<ForeignTensor>& tensors) {
    std::string header = "{";
    LittleEndian data;
    for (const ForeignTensor& tensor : tensors) {
        const std::size_t begin = data.size();
        for (const float value : tensor.values) {
            tensor.dtype == "BOOL" ? data.u8(value != 0.0f) : data.f32(value);
        }
        header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                              header.size() > 1 ? "," : "", tensor.name, tensor.dtype,
                              fmt::join(tensor.shape, ","), begin, data.size());
    }
    header += "}";
    write_text(path, LittleEndian().text(header).raw(data.bytes()).bytes());
}

void write_gguf(const std::filesystem::path& path, const std::vector<ForeignTensor>& tensors,
                const std::string& pairs, std::uint64_t pair_count) {
    LittleEndian bytes;
    bytes.raw("GGUF").u32(3).u64(tensors.size()).u64(pair_count).raw(pairs);
    LittleEndian data;
    for (const ForeignTensor& tensor : tensors) {
        data.pad_to(32);
        bytes.text(tensor.name).u32(tensor.shape.size());
        for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
            bytes.u64(static_cast<std::uint64_t>(*extent));
        }
        bytes.u32(0).u64(data.size());
        for (const float value : tensor.values) data.f32(value);
    }
    bytes.pad_to(32).raw(data.bytes());
    write_text(path, bytes.bytes());
}

GgufPairs metadata_of(const spec::Llama& model) {
    GgufPairs pairs;
    LittleEndian bytes;
    const auto key = [&](const char* name, std::uint32_t type) -> LittleEndian& {
        ++pairs.count;
        return bytes.text(name).u32(type);
    };
    const auto number = [&](const char* name, std::int64_t value) {
        key(name, 4).u32(static_cast<std::uint64_t>(value));
    };
    key("general.architecture", 8).text("llama");
    number("llama.context_length", model.max_positions);
    number("llama.embedding_length", model.d_model);
    number("llama.feed_forward_length", model.d_ff);
    number("llama.block_count", model.num_layers);
    number("llama.attention.head_count", model.num_heads);
    number("llama.attention.head_count_kv", model.num_kv_heads);
    number("llama.attention.key_length", model.head_size);
    number("llama.attention.value_length", model.head_size);
    number("llama.rope.dimension_count", model.head_size);
    key("llama.attention.layer_norm_rms_epsilon", 6).f32(static_cast<float>(model.norm_eps));
    key("llama.rope.freq_base", 6).f32(static_cast<float>(model.rope.theta));
    key("tokenizer.ggml.tokens", 9).u32(8).u64(static_cast<std::uint64_t>(model.vocab_size));
    for (std::int64_t i = 0; i < model.vocab_size; ++i) bytes.text("t");
    pairs.bytes = bytes.bytes();
    return pairs;
}

std::string llmc_bytes(const spec::Gpt2& model) {
    LittleEndian bytes;
    for (const std::int64_t field :
         {std::int64_t{20240326}, std::int64_t{3}, model.max_positions, model.vocab_size,
          model.num_layers, model.num_heads, model.d_model, model.padded_vocab_size}) {
        bytes.u32(static_cast<std::uint64_t>(field));
    }
    bytes.raw(std::string(1024 - bytes.size(), '\0'));
    std::map<std::string, std::vector<float>> values;
    for (const auto& parameter : own_parameters(model)) {
        values[parameter.name] = values_of(parameter);
    }
    const auto add = [&](const std::string& name) {
        for (const float value : values.at(name)) bytes.f32(value);
    };
    add("transformer.wte.weight");
    add("transformer.wpe.weight");
    for (const char* part :
         {"ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias",
          "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight",
          "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias"}) {
        for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
            add(fmt::format("transformer.h.{}.{}", layer, part));
        }
    }
    add("transformer.ln_f.weight");
    add("transformer.ln_f.bias");
    return bytes.bytes();
}

}  // namespace fullshard::checkpoint::toy
