// Kinds of file systems, by what a run may expect of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fullshard::doctor {

struct FileSystem {
    std::string name;   ///< "lustre", "nfs", or the magic number of an unknown one
    std::string doubt;  ///< why run.dir should be elsewhere; empty for most
};

/// By the magic number of statfs(2). `nodes` of the job write to it.
FileSystem file_system_of(std::uint32_t magic, int nodes);

/// The file system that `path`, which exists, is on. Throws RunError with the system's reason.
std::uint32_t file_system_magic(const std::filesystem::path& path);

}  // namespace fullshard::doctor
