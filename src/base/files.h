// Files that appear whole or not at all.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fullshard {

/// Writes `content` to a temporary neighbour, syncs it, and renames it over `path`; then syncs the
/// folder. Throws RunError naming the path and the system's reason.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// The whole file as bytes. Throws DataError naming the path and the system's reason.
std::string read_file(const std::filesystem::path& path);

}  // namespace fullshard
