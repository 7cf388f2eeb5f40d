#include "device/host_memory.h"

#include "base/error.h"
#include "base/round_up.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fullshard::device {

namespace {
constexpr std::int64_t kAlignment = 256;
}

MemoryInfo host_memory_info() {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    return {page * sysconf(_SC_PHYS_PAGES), page * sysconf(_SC_AVPHYS_PAGES)};
}

std::byte* allocate_host(std::string_view name, std::int64_t bytes, std::byte fill) {
    ensure(bytes >= 0, "the length of a buffer is not negative");
    const auto rounded =
        static_cast<std::size_t>(std::max(kAlignment, round_up(bytes, kAlignment)));
    const MemoryInfo info = host_memory_info();
    // Linux promises more than there is, and would end the process when it is touched.
    std::byte* const memory =
        bytes > info.total_bytes ? nullptr
                                 : static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded));
    if (memory == nullptr)
        throw RunError(fmt::format("'{}' needs {} bytes of host memory, {} of {} are free", name,
                                   bytes, info.free_bytes, info.total_bytes));
    std::memset(memory, std::to_integer<int>(fill), rounded);
    return memory;
}

void check_copy(TypedSpan from, TypedSpan to) {
    if (from.dtype != to.dtype || from.count != to.count)
        throw LogicError(fmt::format("a copy of {} {} into {} {}", from.count, name_of(from.dtype),
                                     to.count, name_of(to.dtype)));
    const std::less<const std::byte*> before;
    const bool apart =
        !before(from.data, to.data + to.bytes()) || !before(to.data, from.data + from.bytes());
    ensure(apart || from.count == 0, "the two ends of a copy do not overlap");
}

}  // namespace fullshard::device
