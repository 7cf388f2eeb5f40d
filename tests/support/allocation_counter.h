// Counts the heap allocations of a test binary: linking it replaces the global operator new.
#pragma once

#include <cstdint>

namespace fullshard {

/// Calls of operator new so far.
std::int64_t allocation_count();

}  // namespace fullshard
