// Typed memory without ownership: what communicators and stores exchange.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

namespace fullshard {

/// Element type of raw memory.
enum class DType : std::uint8_t { kFloat32, kBFloat16, kFloat16, kInt64 };

/// Which address space a span points into.
enum class DeviceKind : std::uint8_t { kHost, kCuda };

constexpr std::int64_t size_of(DType dtype) {
    switch (dtype) {
        case DType::kBFloat16:
        case DType::kFloat16:
            return 2;
        case DType::kFloat32:
            return 4;
        case DType::kInt64:
            break;
    }
    return 8;
}

/// "fp32", "bf16", "fp16" or "int64".
constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::kFloat32:
            return "fp32";
        case DType::kBFloat16:
            return "bf16";
        case DType::kFloat16:
            return "fp16";
        case DType::kInt64:
            break;
    }
    return "int64";
}

/// The bits of half-width numbers, for storage; arithmetic goes through float (kernels/cast.h).
struct BFloat16 {
    std::uint16_t bits = 0;
};
struct Float16 {  // IEEE 754 binary16
    std::uint16_t bits = 0;
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
    static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<BFloat16> {
    static constexpr DType value = DType::kBFloat16;
};
template <>
struct DTypeOf<Float16> {
    static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<std::int64_t> {
    static constexpr DType value = DType::kInt64;
};

/// `count` elements of `dtype` at `data`, living on `device`. Views only: the owner outlives it.
struct TypedSpan {
    std::byte* data = nullptr;
    std::int64_t count = 0;
    DType dtype = DType::kFloat32;
    DeviceKind device = DeviceKind::kHost;

    template <typename Host>
    using Element = std::remove_reference_t<std::ranges::range_reference_t<Host>>;

    TypedSpan() = default;

    /// A span, vector or array of the host. What is const may be given to those who only read.
    template <std::ranges::contiguous_range Host>
    explicit(false) TypedSpan(Host&& host)
        : data(reinterpret_cast<std::byte*>(
              const_cast<std::remove_const_t<Element<Host>>*>(std::ranges::data(host)))),
          count(static_cast<std::int64_t>(std::ranges::size(host))),
          dtype(DTypeOf<std::remove_const_t<Element<Host>>>::value) {}

    std::int64_t bytes() const { return count * size_of(dtype); }

    /// Elements [begin, begin + length).
    TypedSpan part(std::int64_t begin, std::int64_t length) const {
        TypedSpan result = *this;
        result.data += begin * size_of(dtype);
        result.count = length;
        return result;
    }
    /// The same memory as numbers of type T, which must be its dtype.
    template <typename T>
    std::span<T> as() const {
        return {reinterpret_cast<T*>(data), static_cast<std::size_t>(count)};
    }
};

/// One block of equal length per rank of a group, at a constant distance: block i starts at
/// `first + i * stride` elements. A flat parameter cut into shards has `stride == block_count`;
/// the shards that one lane exchanges between nodes lie further apart.
struct RankBlocks {
    std::byte* first = nullptr;
    std::int64_t block_count = 0;  ///< elements in each block
    std::int64_t stride = 0;       ///< elements from one block to the next
    DType dtype = DType::kFloat32;
    DeviceKind device = DeviceKind::kHost;

    std::byte* block(std::int64_t rank) const { return first + rank * stride * size_of(dtype); }
    std::int64_t block_bytes() const { return block_count * size_of(dtype); }
};

/// Cuts `whole` into `ranks` adjacent blocks; its length must be a multiple of `ranks`.
inline RankBlocks adjacent_blocks(TypedSpan whole, std::int64_t ranks) {
    return {whole.data, whole.count / ranks, whole.count / ranks, whole.dtype, whole.device};
}

}  // namespace fullshard
