#include "comm/shared_memory.h"

#include <sys/statvfs.h>

#include <cstdlib>

namespace fullshard::comm {

std::optional<SharedMemory> shared_memory() {
    const char* chosen = std::getenv("OMPI_MCA_osc_sm_backing_directory");
    SharedMemory memory{.folder = chosen != nullptr ? chosen : "/dev/shm"};
    struct statvfs status {};
    if (statvfs(memory.folder.c_str(), &status) != 0) return std::nullopt;
    const auto block = static_cast<std::int64_t>(status.f_frsize);
    memory.size = static_cast<std::int64_t>(status.f_blocks) * block;
    memory.free = static_cast<std::int64_t>(status.f_bavail) * block;
    return memory;
}

}  // namespace fullshard::comm
