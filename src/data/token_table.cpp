#include "data/token_table.h"

#include "base/error.h"
#include "data/file_kind.h"
#include "data/mapped_file.h"

#include <fmt/format.h>

namespace fullshard::data {
namespace {

/// Version 1 does not store it: GPT-2's.
constexpr std::int64_t kGpt2EndOfText = 50256;
/// Stored by tools/tokenize.py, as 0xFFFFFFFF, where no token ends a text.
constexpr std::int64_t kNoEndOfText = -1;

}  // namespace

TokenTable TokenTable::of_bytes() {
    TokenTable table;
    for (int byte = 0; byte < 256; ++byte) {
        table.starts_.push_back(byte);
        table.bytes_.push_back(static_cast<char>(byte));
    }
    table.starts_.push_back(256);
    return table;
}

TokenTable TokenTable::read(const std::filesystem::path& path) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    const auto fail = [&](std::int64_t byte, const std::string& what) {
        throw DataError(fmt::format("{}: byte {}: {}", path.string(), byte, what));
    };
    if (file.size() < kLlmcHeaderBytes || number_at<std::int32_t>(bytes, 0) != kLlmcTokenizer)
        fail(0, fmt::format("{} of {} bytes in place of a tokenizer of llm.c (magic {})",
                            file_kind(bytes), file.size(), kLlmcTokenizer));
    const auto version = number_at<std::int32_t>(bytes, 4);
    if (version != 1 && version != 2)
        fail(4, fmt::format("version {} of {}; 1 and 2 are known", version, file_kind(bytes)));
    // Every token takes a byte at least: this bounds what is allocated.
    const std::int64_t tokens = number_at<std::int32_t>(bytes, 8);
    if (tokens < 1 || tokens > file.size() - kLlmcHeaderBytes)
        fail(8, fmt::format("{} tokens do not fit into {} bytes", tokens, file.size()));
    const std::int64_t end_of_text =
        version == 1 ? kGpt2EndOfText : number_at<std::int32_t>(bytes, 12);
    if (version != 1 && (end_of_text < kNoEndOfText || end_of_text >= tokens))
        fail(12, fmt::format("the token that ends a text is {} of {}", end_of_text, tokens));

    TokenTable table;
    if (end_of_text >= 0 && end_of_text < tokens) table.end_of_text_ = end_of_text;
    table.starts_.reserve(static_cast<std::size_t>(tokens) + 1);
    table.starts_.push_back(0);
    std::int64_t at = kLlmcHeaderBytes;
    for (std::int64_t token = 0; token < tokens; ++token) {
        const std::int64_t length = at < file.size() ? number_at<std::uint8_t>(bytes, at) : 0;
        if (at >= file.size() || length > file.size() - at - 1)
            fail(at, fmt::format("the file is cut off in token {} of {}", token, tokens));
        const auto text = file.bytes(at + 1, length);
        table.bytes_.append(reinterpret_cast<const char*>(text.data()), text.size());
        table.starts_.push_back(std::ssize(table.bytes_));
        at += 1 + length;
    }
    if (at != file.size())
        fail(at, fmt::format("{} bytes follow the last of {} tokens", file.size() - at, tokens));
    return table;
}

TokenTable TokenTable::open(const std::filesystem::path& folder) {
    return folder.empty() ? of_bytes() : read(folder / "tokenizer.bin");
}

std::string_view TokenTable::bytes_of(std::int64_t token) const {
    if (token < 0 || token >= vocab_size()) return {};
    const auto first = starts_[static_cast<std::size_t>(token)];
    const auto end = starts_[static_cast<std::size_t>(token) + 1];
    return std::string_view(bytes_).substr(static_cast<std::size_t>(first),
                                           static_cast<std::size_t>(end - first));
}

}  // namespace fullshard::data
