// Counts what a test binary asks of MPI: linking it puts functions of our own before MPI's.
#pragma once

#include <cstdint>

namespace fullshard {

/// Collectives, and new communicators and windows, that this rank has started so far.
std::int64_t collective_count();

}  // namespace fullshard
