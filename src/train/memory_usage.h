// What the operating system says this process uses.
#pragma once

#include <cstdint>

namespace fullshard::train {

/// Bytes. The proportional set counts a page shared by n processes as 1/n in each, so that the sum
/// over the ranks of a node is what the node really uses.
struct MemoryUsage {
    std::int64_t peak_resident = 0;
    std::int64_t proportional = 0;
};

/// The memory of this node, in bytes; 0 where the kernel does not tell.
struct NodeMemory {
    std::int64_t total = 0;
    std::int64_t available = 0;  ///< to new work, without swapping
};
NodeMemory node_memory();

/// How often this process has met a page that it had not touched before, so far. On a slow machine
/// each costs tens of microseconds: steady steps should meet none.
std::int64_t page_faults();

/// Peak of the resident set so far: cheap.
std::int64_t peak_resident_bytes();
/// Both; walks the page tables, which takes milliseconds.
MemoryUsage memory_usage();

}  // namespace fullshard::train
