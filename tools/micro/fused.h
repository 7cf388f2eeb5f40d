// The arithmetic that a core can do at most.
#pragma once

#include <cstdint>

namespace fullshard::micro {

/// Does `count` fused multiply-adds of fp32, or a few more, in registers alone, on vectors as wide
/// as the CPU has them, and returns a number that depends on all of them.
float fuse(std::int64_t count);

}  // namespace fullshard::micro
