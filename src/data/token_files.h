// Token files that other programs write. Sizes, counts and offsets in them are checked before they
// are used: a damaged or foreign file is a DataError naming path, place and values.
#pragma once

#include "data/token_source.h"

#include <cstdint>
#include <filesystem>
#include <memory>

namespace fullshard::data {

/// Token shards of llm.c: 1024 bytes of header (magic 20240520, version 1: 16-bit tokens; magic
/// 20240801, version 7: 32-bit tokens), then the tokens. `path` is a file, a folder (its *.bin), or
/// a pattern with `*` in the file name; several files are joined in the order of their names.
std::shared_ptr<const TokenSource> open_llmc(const std::filesystem::path& path,
                                             std::int64_t vocab_size);

/// An indexed data set of Megatron-LM: `path`.bin holds tokens, `path`.idx (magic MMIDIDX, version
/// 1) their type and the documents. `path` may name either file as well. Sequences must lie one
/// after the other, as Megatron's builder writes them.
std::shared_ptr<const TokenSource> open_megatron(const std::filesystem::path& path,
                                                 std::int64_t vocab_size);

}  // namespace fullshard::data
