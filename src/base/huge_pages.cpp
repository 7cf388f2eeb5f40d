#include "base/huge_pages.h"

#include "base/round_up.h"

#include <sys/mman.h>

namespace fullshard {

void advise_huge_pages(std::span<std::byte> memory) {
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory.data()));
    const std::int64_t skip = round_up(address, kHugePage) - address;
    const std::int64_t whole = (std::ssize(memory) - skip) / kHugePage * kHugePage;
    if (whole <= 0) return;
    // Kernels without huge pages say EINVAL.
    static_cast<void>(
        ::madvise(memory.data() + skip, static_cast<std::size_t>(whole), MADV_HUGEPAGE));
}

}  // namespace fullshard
