// Which files a path of the user's stands for.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace fullshard::data {

/// A file itself; of a folder, the regular files in it with one of `extensions` (".bin"); of a
/// pattern with `*` or `?` in the file name, the regular files that match. In the order of their
/// names, byte by byte: the same on every machine and in every locale. Throws DataError naming the
/// path when there is none.
std::vector<std::filesystem::path> list_files(const std::filesystem::path& path,
                                              std::initializer_list<std::string_view> extensions);

}  // namespace fullshard::data
