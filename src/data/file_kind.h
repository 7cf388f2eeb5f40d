// What a file is, by its first bytes: so that messages say what was found in place of what.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fullshard::data {

// Headers of llm.c start with one of these, a little-endian 32-bit integer.
inline constexpr std::int32_t kLlmcTokens16 = 20240520;
inline constexpr std::int32_t kLlmcTokens32 = 20240801;
inline constexpr std::int32_t kLlmcTokenizer = 20240328;
/// Bytes of a header of llm.c: 256 32-bit integers.
inline constexpr std::int64_t kLlmcHeaderBytes = 1024;

inline constexpr std::string_view kMegatronIndexMagic{"MMIDIDX\0\0", 9};

/// The compression format whose files start like `bytes`: "gzip", "xz", "bzip2", "zstd" or "zip".
std::optional<std::string_view> compression_of(std::string_view bytes);

/// Kind of file that starts like `bytes`, as in "a tokenizer of llm.c"; "data of an unknown kind"
/// otherwise.
std::string file_kind(std::span<const std::byte> bytes);

/// The little-endian number at byte `offset`, which need not be aligned. `bytes` must hold it.
template <typename T>
T number_at(std::span<const std::byte> bytes, std::int64_t offset) {
    static_assert(std::endian::native == std::endian::little);
    T value;
    std::memcpy(&value, bytes.subspan(static_cast<std::size_t>(offset), sizeof(T)).data(),
                sizeof(T));
    return value;
}

}  // namespace fullshard::data
