#include "data/file_kind.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace fullshard::data {
namespace {

using namespace std::string_view_literals;

constexpr std::array<std::pair<std::int32_t, std::string_view>, 8> kLlmcKinds = {{
    {20240326, "a GPT-2 model of llm.c"},
    {20240327, "a debug state of llm.c"},
    {kLlmcTokenizer, "a tokenizer of llm.c"},
    {kLlmcTokens16, "a token file of llm.c with 16-bit tokens"},
    {20240522, "an evaluation set of llm.c"},
    {20240527, "an optimizer state of llm.c"},
    {kLlmcTokens32, "a token file of llm.c with 32-bit tokens"},
    {20240803, "a Llama-3 model of llm.c"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOtherKinds = {{
    {kMegatronIndexMagic, "an index of Megatron (.idx)"},
    {"\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    {"GGUF"sv, "a GGUF model"},
    {"{"sv, "JSON text"},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kCompressions = {{
    {"\x1f\x8b"sv, "gzip"},
    {"\xfd"
     "7zXZ\0"sv,
     "xz"},
    {"BZh"sv, "bzip2"},
    {"\x28\xb5\x2f\xfd"sv, "zstd"},
    {"PK\x03\x04"sv, "zip"},
}};

}  // namespace

std::optional<std::string_view> compression_of(std::string_view bytes) {
    for (const auto& [magic, format] : kCompressions)
        if (bytes.starts_with(magic)) return format;
    return std::nullopt;
}

std::string file_kind(std::span<const std::byte> bytes) {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const auto format = compression_of(text)) return fmt::format("{} data", *format);
    for (const auto& [magic, kind] : kOtherKinds)
        if (text.starts_with(magic)) return std::string(kind);
    if (bytes.size() >= sizeof(std::int32_t)) {
        const auto found = number_at<std::int32_t>(bytes, 0);
        for (const auto& [magic, kind] : kLlmcKinds)
            if (found == magic) return std::string(kind);
    }
    return "data of an unknown kind";
}

}  // namespace fullshard::data
