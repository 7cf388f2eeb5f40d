// Zeroed float memory whose alignment never varies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace fullshard {

/// `count` floats, zeroed, aligned to 256 bytes. Matrix products may round differently on memory of
/// another alignment, so everything they read or write is aligned alike, whoever holds it.
class AlignedBuffer {
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(std::int64_t count);

    std::span<float> span() const { return {memory_.get(), static_cast<std::size_t>(count_)}; }
    std::int64_t bytes() const { return count_ * static_cast<std::int64_t>(sizeof(float)); }

  private:
    struct Free {
        void operator()(float* memory) const;
    };
    std::unique_ptr<float[], Free> memory_;
    std::int64_t count_ = 0;
};

}  // namespace fullshard
