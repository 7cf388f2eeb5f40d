// Element types of GGUF files, and the numbers that their quantised blocks stand for.
#pragma once

#include "base/span.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fullshard::checkpoint {

/// The types that are read, with the codes that files have for them.
enum class GgufType : std::uint32_t {
    kF32 = 0,
    kF16 = 1,
    kQ4_0 = 2,
    kQ4_1 = 3,
    kQ8_0 = 8,
    kQ4_K = 12,
    kQ6_K = 14,
    kBF16 = 30,
};

/// Rows are cut into blocks of `elements` numbers, each `bytes` long in the file.
struct GgufBlock {
    GgufType type;
    std::string_view name;
    std::int64_t elements;
    std::int64_t bytes;
    std::optional<DType> plain;  ///< the type of numbers that are not quantised
};
inline constexpr std::int64_t kMostGgufBlockElements = 256;
inline constexpr std::int64_t kMostGgufBlockBytes = 210;

/// Null for a code that is not in the list above.
const GgufBlock* find_gguf_block(std::uint32_t code);
const GgufBlock& block_of(GgufType type);

/// Writes the numbers of one quantised block: as many as it has elements. Arithmetic is that of the
/// reference implementation, in float32: equal bits.
void dequantise(GgufType type, const std::byte* block, std::span<float> out);

}  // namespace fullshard::checkpoint
