// The safetensors container: a length, a JSON header, the tensors' bytes.
#pragma once

#include "base/span.h"
#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fullshard::checkpoint {

/// A tensor of a safetensors file.
struct SafetensorsEntry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t file_offset = 0;  ///< of its first byte
    DType dtype = DType::kFloat32;
    std::string unread_type =
        {};  ///< "I64" or alike: values that `dtype` cannot say, not read here

    std::int64_t bytes() const;
    friend bool operator==(const SafetensorsEntry&, const SafetensorsEntry&) = default;
};

/// Texts by name that say where the tensors come from.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// Everything that stands before the tensors' bytes, and sets the offsets of the entries, whose
/// bytes follow in their order. For entries of one type in the order of their names it is equal to
/// what the reference library writes with the metadata {"format": "pt"}, without which some readers
/// refuse; `metadata` is added to it. Throws UsageError for a tensor named as the metadata is.
std::string make_safetensors_header(std::span<SafetensorsEntry> entries,
                                    const SafetensorsMetadata& metadata = {});

/// Entries in the order of their bytes. Trusts nothing in the file: throws DataError naming file
/// and tensor for a length past the end, bad JSON, names twice, types that the format does not
/// have, shapes whose size overflows, and bytes that overlap, leave holes or do not end with the
/// file.
std::vector<SafetensorsEntry> read_safetensors_header(const PosixFile& file);

}  // namespace fullshard::checkpoint
