#include "checkpoint/format/llmc_model.h"

#include "base/error.h"
#include "checkpoint/format/row_major.h"
#include "checkpoint/format/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace fullshard::checkpoint {
namespace {

constexpr std::int32_t kVersionOfFp32 = 3;
constexpr std::int32_t kVersionOfBf16 = 5;
using Fields = std::array<std::int32_t, kLlmcHeaderBytes / 4>;

struct MagicName {
    std::int32_t magic;
    std::string_view kind;
};
constexpr std::array kMagics{MagicName{20240520, "a file of tokens (GPT-2)"},
                             MagicName{20240801, "a file of tokens (Llama 3)"},
                             MagicName{20240803, "a Llama 3 model"},
                             MagicName{20240327, "a debug state"},
                             MagicName{20240328, "a tokenizer"},
                             MagicName{20240522, "an evaluation set"},
                             MagicName{20240527, "an optimizer's state"}};

/// One of the sixteen tensors of the format.
struct Slot {
    std::string_view name;
    std::vector<std::int64_t> shape;  ///< as in the file
    bool per_layer = false;
};

std::vector<Slot> slots_of(const LlmcModel& model) {
    const std::int64_t d = model.d_model;
    return {{"wte", {model.padded_vocab_size, d}},
            {"wpe", {model.max_positions, d}},
            {"ln1w", {d}, true},
            {"ln1b", {d}, true},
            {"qkvw", {3 * d, d}, true},
            {"qkvb", {3 * d}, true},
            {"attprojw", {d, d}, true},
            {"attprojb", {d}, true},
            {"ln2w", {d}, true},
            {"ln2b", {d}, true},
            {"fcw", {4 * d, d}, true},
            {"fcb", {4 * d}, true},
            {"fcprojw", {d, 4 * d}, true},
            {"fcprojb", {d}, true},
            {"lnfw", {d}},
            {"lnfb", {d}}};
}

/// Sizes of which no product leaves 63 bits.
struct Limit {
    std::size_t field;
    std::string_view name;
    std::int64_t LlmcModel::*member;
    std::int64_t most;
};
constexpr std::array kLimits{
    Limit{2, "max_seq_len", &LlmcModel::max_positions, std::int64_t{1} << 30},
    Limit{3, "vocab_size", &LlmcModel::vocab_size, std::int64_t{1} << 28},
    Limit{4, "num_layers", &LlmcModel::num_layers, std::int64_t{1} << 14},
    Limit{5, "num_heads", &LlmcModel::num_heads, std::int64_t{1} << 20},
    Limit{6, "channels", &LlmcModel::d_model, std::int64_t{1} << 20},
    Limit{7, "padded_vocab_size", &LlmcModel::padded_vocab_size, std::int64_t{1} << 28}};

}  // namespace

std::vector<LlmcTensor> llmc_tensors(const LlmcModel& model) {
    std::vector<LlmcTensor> tensors;
    std::int64_t offset = kLlmcHeaderBytes;
    for (const Slot& slot : slots_of(model)) {
        const std::int64_t bytes = numel(slot.shape) * size_of(model.dtype);
        for (std::int64_t layer = 0; layer < (slot.per_layer ? model.num_layers : 1); ++layer) {
            std::string name =
                slot.per_layer ? fmt::format("{}.{}", slot.name, layer) : std::string(slot.name);
            tensors.push_back({std::move(name), slot.shape, offset});
            offset += bytes;
        }
    }
    tensors.front().shape.front() = model.vocab_size;
    return tensors;
}

std::int64_t llmc_file_bytes(const LlmcModel& model) {
    std::int64_t elements = 0;
    for (const Slot& slot : slots_of(model)) {
        elements += numel(slot.shape) * (slot.per_layer ? model.num_layers : 1);
    }
    return kLlmcHeaderBytes + elements * size_of(model.dtype);
}

std::string_view llmc_kind(std::int32_t magic) {
    const auto* found = std::ranges::find(kMagics, magic, &MagicName::magic);
    return found == kMagics.end() ? std::string_view() : found->kind;
}

std::array<std::byte, kLlmcHeaderBytes> make_llmc_header(const LlmcModel& model) {
    ensure(model.dtype != DType::kFloat16, "llm.c knows fp32 and bf16");
    Fields fields{};
    fields[0] = kLlmcModelMagic;
    fields[1] = model.dtype == DType::kFloat32 ? kVersionOfFp32 : kVersionOfBf16;
    for (const Limit& limit : kLimits) {
        fields[limit.field] = static_cast<std::int32_t>(model.*limit.member);
    }
    return std::bit_cast<std::array<std::byte, kLlmcHeaderBytes>>(fields);
}

LlmcModel read_llmc_header(const PosixFile& file) {
    const auto refuse = [&](std::string_view problem) {
        throw DataError(fmt::format("{}: {}", file.path().string(), problem));
    };
    if (file.size() < kLlmcHeaderBytes) refuse("is too short for a model of llm.c");
    std::array<std::byte, kLlmcHeaderBytes> bytes;
    file.read(0, bytes);
    const auto fields = std::bit_cast<Fields>(bytes);
    if (fields[0] != kLlmcModelMagic) {
        refuse(fmt::format("magic number {} is not that of a GPT-2 model of llm.c, {}", fields[0],
                           kLlmcModelMagic));
    }
    LlmcModel model;
    if (fields[1] != kVersionOfFp32 && fields[1] != kVersionOfBf16) {
        refuse(fmt::format("is of version {}, only 3 (fp32) and 5 (bf16) are read", fields[1]));
    }
    model.dtype = fields[1] == kVersionOfFp32 ? DType::kFloat32 : DType::kBFloat16;
    for (const Limit& limit : kLimits) {
        const std::int32_t value = fields[limit.field];
        if (value < 1 || value > limit.most) {
            refuse(fmt::format("{} = {} at byte {}: must be from 1 to {}", limit.name, value,
                               4 * limit.field, limit.most));
        }
        model.*limit.member = value;
    }
    if (model.padded_vocab_size < model.vocab_size) {
        refuse(fmt::format("padded_vocab_size = {} is less than vocab_size = {}",
                           model.padded_vocab_size, model.vocab_size));
    }
    if (model.d_model % model.num_heads != 0) {
        refuse(fmt::format("num_heads = {} does not divide channels = {}", model.num_heads,
                           model.d_model));
    }
    if (const std::int64_t expected = llmc_file_bytes(model); file.size() != expected) {
        refuse(fmt::format("holds {} bytes, its header asks for {}", file.size(), expected));
    }
    return model;
}

LlmcWeights::LlmcWeights(const std::filesystem::path& path)
    : file_(PosixFile::open(path)), model_(read_llmc_header(file_)) {
    for (LlmcTensor& tensor : llmc_tensors(model_)) {
        tensors_.push_back({tensor.name, tensor.shape});
        places_.emplace(tensor.name, std::move(tensor));
    }
}

void LlmcWeights::read(std::string_view parameter, std::int64_t begin, std::span<float> out) {
    const auto found = places_.find(parameter);
    if (found == places_.end()) {
        throw DataError(fmt::format("{} has no tensor {}", file_.path().string(), parameter));
    }
    const LlmcTensor& tensor = found->second;
    require_range(file_, parameter, numel(tensor.shape), begin, std::ssize(out));
    read_values(file_, tensor.file_offset + begin * size_of(model_.dtype), model_.dtype, out);
}

}  // namespace fullshard::checkpoint
