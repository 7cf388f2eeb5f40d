// What the two host devices share: their memory, and the checks of what they are asked.
#pragma once

#include "device/device.h"

namespace fullshard::device {

/// Of this machine, as the kernel tells it.
MemoryInfo host_memory_info();

/// `bytes` of memory aligned to 256 bytes, every byte `fill`. Throws RunError naming `name` when
/// the memory is short. To be freed with std::free.
std::byte* allocate_host(std::string_view name, std::int64_t bytes, std::byte fill);

/// LogicError unless the spans are of one dtype and length and do not overlap.
void check_copy(TypedSpan from, TypedSpan to);

}  // namespace fullshard::device
