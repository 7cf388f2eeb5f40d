// The GGUF container of llama.cpp: typed metadata, tensor descriptions, the tensors' bytes.
#pragma once

#include "checkpoint/format/gguf_blocks.h"
#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fullshard::checkpoint {

/// Of a list in the metadata only the length is kept: vocabularies are long.
struct GgufList {
    std::int64_t count = 0;
};
using GgufValue = std::variant<bool, std::uint64_t, std::int64_t, double, std::string, GgufList>;

struct GgufTensor {
    std::string name;
    std::vector<std::int64_t> shape;  ///< row-major, where the file lists the fastest extent first
    GgufType type = GgufType::kF32;
    std::int64_t file_offset = 0;  ///< of its first byte

    std::int64_t bytes() const;
};

struct GgufHeader {
    std::map<std::string, GgufValue, std::less<>> metadata;
    std::vector<GgufTensor> tensors;  ///< in the file's order

    /// Null when there is none.
    const GgufValue* find(std::string_view key) const;
};

/// Versions 2 and 3, little-endian. Trusts nothing in the file: throws DataError naming file and
/// key or tensor for another magic or version, counts and lengths beyond the file, names twice,
/// types that are not read, shapes that are impossible or no whole number of blocks, and bytes that
/// are not aligned, overlap or lie outside the file.
GgufHeader read_gguf_header(const PosixFile& file);

}  // namespace fullshard::checkpoint
