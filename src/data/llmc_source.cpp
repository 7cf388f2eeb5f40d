#include "base/error.h"
#include "data/file_kind.h"
#include "data/file_list.h"
#include "data/mapped_tokens.h"
#include "data/token_files.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace fullshard::data {
namespace {

TokenFile open_shard(const std::filesystem::path& path) {
    TokenFile shard{.file = MappedFile(path), .first_byte = kLlmcHeaderBytes};
    const std::string name = path.string();
    const auto header = shard.file.bytes();
    if (shard.file.size() < kLlmcHeaderBytes)
        throw DataError(
            fmt::format("{}: {} bytes ({}) are too few for the header of a token file of llm.c, "
                        "which has {}",
                        name, shard.file.size(), file_kind(header), kLlmcHeaderBytes));
    const auto magic = number_at<std::int32_t>(header, 0);
    if (magic != kLlmcTokens16 && magic != kLlmcTokens32)
        throw DataError(fmt::format(
            "{}: byte 0: {} in place of a token file of llm.c (magic {}; {} or {} is right)", name,
            file_kind(header), magic, kLlmcTokens16, kLlmcTokens32));
    const bool wide = magic == kLlmcTokens32;
    shard.type = wide ? TokenType::kU32 : TokenType::kU16;
    const auto version = number_at<std::int32_t>(header, 4);
    const std::int32_t known = wide ? 7 : 1;
    if (version != known)
        throw DataError(fmt::format("{}: byte 4: version {} of {}; only version {} is known", name,
                                    version, file_kind(header), known));
    shard.count = number_at<std::int32_t>(header, 8);
    const std::int64_t expected = kLlmcHeaderBytes + shard.count * size_of(shard.type);
    if (shard.count < 0 || shard.file.size() != expected)
        throw DataError(fmt::format(
            "{}: byte 8: a header of {} tokens makes {} bytes, the file has {}: it is {}", name,
            shard.count, expected, shard.file.size(),
            shard.file.size() < expected ? "cut off" : "too long"));
    return shard;
}

}  // namespace

std::shared_ptr<const TokenSource> open_llmc(const std::filesystem::path& path,
                                             std::int64_t vocab_size) {
    std::vector<TokenFile> shards;
    for (const auto& file : list_files(path, {".bin"})) shards.push_back(open_shard(file));
    return std::make_shared<MappedTokens>(path, std::move(shards), std::vector<std::int64_t>{},
                                          vocab_size);
}

}  // namespace fullshard::data
