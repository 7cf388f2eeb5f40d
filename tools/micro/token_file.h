// A token file as tools/tokenize.py writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace fullshard::micro {

/// A 1-D dataset `tokens` of 16-bit integers in one piece. Throws RunError naming the path.
void write_token_file(const std::filesystem::path& path, std::span<const std::uint16_t> tokens);

}  // namespace fullshard::micro
