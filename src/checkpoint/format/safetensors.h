// The safetensors container: a length, a JSON header, the tensors' bytes.
#pragma once

#include "checkpoint/format/posix_file.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fullshard::checkpoint {

/// An F32 tensor of a safetensors file.
struct SafetensorsEntry {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t file_offset = 0;  ///< of its first byte

    friend bool operator==(const SafetensorsEntry&, const SafetensorsEntry&) = default;
};

/// Orders entries as the reference writer does (by name, since all have one type), sets their
/// offsets, and returns everything that stands before the tensors' bytes: equal to what the
/// reference library writes for the same tensors with the metadata {"format": "pt"}, without which
/// some readers refuse. Throws UsageError for a tensor named as the metadata is.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries);

/// Entries in the order of their bytes. Trusts nothing in the file: throws DataError naming file
/// and tensor for a length past the end, bad JSON, names twice, another type than F32, shapes whose
/// size overflows, and bytes that overlap, leave holes or do not end with the file.
std::vector<SafetensorsEntry> read_safetensors_header(const PosixFile& file);

}  // namespace fullshard::checkpoint
