// Where the memory that ranks of a node share comes from, and how much of it there is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fullshard::comm {

/// The file system behind MPI's shared windows.
struct SharedMemory {
    std::string folder;
    std::int64_t size = 0;  ///< bytes
    std::int64_t free = 0;  ///< bytes
};

/// Of this host. None where its folder does not exist: Open MPI then takes its session folder.
std::optional<SharedMemory> shared_memory();

}  // namespace fullshard::comm
