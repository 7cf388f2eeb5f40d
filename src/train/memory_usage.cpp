#include "train/memory_usage.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace fullshard::train {

namespace {

/// The number of kB behind `label` in a /proc file, in bytes; 0 where the kernel does not tell.
std::int64_t read_field(const char* path, const std::string& label) {
    std::ifstream file(path);
    for (std::string word; file >> word;) {
        std::int64_t kilobytes = 0;
        if (word == label && file >> kilobytes) return kilobytes * 1024;
    }
    return 0;
}

}  // namespace

NodeMemory node_memory() {
    return {read_field("/proc/meminfo", "MemTotal:"), read_field("/proc/meminfo", "MemAvailable:")};
}

std::int64_t page_faults() {
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return usage.ru_minflt + usage.ru_majflt;
}

std::int64_t peak_resident_bytes() {
    return read_field("/proc/self/status", "VmHWM:");
}

MemoryUsage memory_usage() {
    return {peak_resident_bytes(), read_field("/proc/self/smaps_rollup", "Pss:")};
}

}  // namespace fullshard::train
