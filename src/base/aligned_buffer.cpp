#include "base/aligned_buffer.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace fullshard {

namespace {
constexpr std::size_t kAlignment = 256;
}

AlignedBuffer::AlignedBuffer(std::int64_t count) : count_(count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    // aligned_alloc wants a multiple of the alignment, and zero bytes would give no address.
    const std::size_t rounded =
        std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    memory_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, rounded)));
    if (!memory_) throw std::bad_alloc();
    std::ranges::fill(span(), 0.0F);
}

void AlignedBuffer::Free::operator()(float* memory) const {
    std::free(memory);
}

}  // namespace fullshard
