#include "base/aligned_buffer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace fullshard {

namespace {
constexpr std::size_t kAlignment = 256;
}

AlignedBuffer::AlignedBuffer(std::int64_t count, DType dtype) : count_(count), dtype_(dtype) {
    const auto bytes = static_cast<std::size_t>(count * size_of(dtype));
    // aligned_alloc wants a multiple of the alignment, and zero bytes would give no address.
    const std::size_t rounded =
        std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    if (!memory_) throw std::bad_alloc();
    std::memset(memory_.get(), 0, rounded);
}

void AlignedBuffer::Free::operator()(std::byte* memory) const {
    std::free(memory);
}

}  // namespace fullshard
