// Goes over flat memory by many threads, in packets of 16 bytes where addresses allow it.
#pragma once

#include "kernels/elements/host_device.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace fullshard::kernels {

/// CUDA's widest access to memory that all supported devices have.
inline constexpr std::size_t kPacketBytes = 16;

/// Elements that are read or written at once.
template <typename T, std::size_t kCount>
struct alignas(std::min(sizeof(T) * kCount, kPacketBytes)) Packet {
    T values[kCount];
};

/// Elements of a packet when operands have these types: the widest one fills 16 bytes.
template <typename... Types>
inline constexpr std::size_t kPacketElements = kPacketBytes / std::max({sizeof(Types)...});

template <std::size_t kCount, typename T>
FULLSHARD_HOST_DEVICE Packet<T, kCount> load(const T* memory) {
    return *reinterpret_cast<const Packet<T, kCount>*>(memory);
}
template <std::size_t kCount, typename T>
FULLSHARD_HOST_DEVICE void store(T* memory, const Packet<T, kCount>& packet) {
    *reinterpret_cast<Packet<T, kCount>*>(memory) = packet;
}

/// One operand of an operation on flat memory; one without bytes is aligned everywhere.
struct Operand {
    const void* data = nullptr;
    std::size_t element_bytes = 0;
};

/// How `count` elements are gone over: single ones up to the first address at which packets of all
/// operands are aligned, packets, and single ones at the end. Without such an address, which only
/// operands with different remainders lack, all are single.
struct PacketCut {
    std::int64_t count = 0;
    std::int64_t head = 0;     ///< single elements before the packets
    std::int64_t packets = 0;  ///< of `width` elements each
    std::int64_t width = 1;

    FULLSHARD_HOST_DEVICE std::int64_t packet(std::int64_t number) const {
        return head + number * width;
    }
    FULLSHARD_HOST_DEVICE std::int64_t singles() const { return count - packets * width; }
    FULLSHARD_HOST_DEVICE std::int64_t single(std::int64_t number) const {
        return number < head ? number : number + packets * width;
    }
};

inline PacketCut cut_into_packets(std::int64_t count, std::size_t width,
                                  std::initializer_list<Operand> operands) {
    const auto step = static_cast<std::int64_t>(width);
    for (std::int64_t head = 0; head < std::min(step, count); ++head) {
        const auto aligned = [&](const Operand& operand) {
            if (operand.element_bytes == 0) return true;
            const std::size_t alignment = std::min(width * operand.element_bytes, kPacketBytes);
            const auto begin = reinterpret_cast<std::uintptr_t>(operand.data) +
                               static_cast<std::size_t>(head) * operand.element_bytes;
            return begin % alignment == 0;
        };
        if (std::all_of(operands.begin(), operands.end(), aligned))
            return {count, head, (count - head) / step, step};
    }
    return {count, 0, 0, step};
}

/// The part of thread number `thread` of `threads`: calls `body.template at<kWidth>(i)` for packets
/// and `body.template at<1>(i)` for single elements, which start at element i.
template <std::size_t kWidth, typename Body>
FULLSHARD_HOST_DEVICE void go_over(const PacketCut& cut, std::int64_t thread, std::int64_t threads,
                                   Body& body) {
    for (std::int64_t i = thread; i < cut.packets; i += threads)
        body.template at<kWidth>(cut.packet(i));
    for (std::int64_t i = thread; i < cut.singles(); i += threads)
        body.template at<1>(cut.single(i));
}

}  // namespace fullshard::kernels
