// Zeroed memory of numbers whose alignment never varies.
#pragma once

#include "base/span.h"

#include <cstdint>
#include <memory>
#include <span>

namespace fullshard {

/// `count` zeros, aligned to 256 bytes, large ones in huge pages where the system has them. Matrix products may round differently on memory of another
/// alignment, so everything they read or write is aligned alike, whoever holds it.
class AlignedBuffer {
  public:
    AlignedBuffer() = default;
    explicit AlignedBuffer(std::int64_t count, DType dtype = DType::kFloat32);

    TypedSpan typed() const {
        TypedSpan all;
        all.data = memory_.get();
        all.count = count_;
        all.dtype = dtype_;
        return all;
    }
    /// Of a buffer of fp32.
    std::span<float> span() const { return typed().as<float>(); }
    bool empty() const { return count_ == 0; }
    std::int64_t bytes() const { return count_ * size_of(dtype_); }

  private:
    struct Free {
        void operator()(std::byte* memory) const;
    };
    std::unique_ptr<std::byte[], Free> memory_;
    std::int64_t count_ = 0;
    DType dtype_ = DType::kFloat32;
};

}  // namespace fullshard
