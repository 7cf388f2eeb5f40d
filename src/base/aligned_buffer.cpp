#include "base/aligned_buffer.h"

#include "base/huge_pages.h"
#include "base/round_up.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace fullshard {

namespace {
constexpr std::int64_t kAlignment = 256;
}

AlignedBuffer::AlignedBuffer(std::int64_t count, DType dtype) : count_(count), dtype_(dtype) {
    // aligned_alloc wants a multiple of the alignment, and zero bytes would give no address.
    const auto rounded =
        static_cast<std::size_t>(std::max(kAlignment, round_up(bytes(), kAlignment)));
    const auto alignment =
        static_cast<std::size_t>(bytes() < 2 * kHugePage ? kAlignment : kHugePage);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
    if (!memory_) throw std::bad_alloc();
    advise_huge_pages({memory_.get(), rounded});
    std::memset(memory_.get(), 0, rounded);
}

void AlignedBuffer::Free::operator()(std::byte* memory) const {
    std::free(memory);
}

}  // namespace fullshard
