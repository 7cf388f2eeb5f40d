#include "shard/disturbance.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace fullshard::shard {

void Disturbance::delay() {
    if (faults_.max_delay_us <= 0) return;
    const auto bound = static_cast<std::uint64_t>(faults_.max_delay_us) + 1;
    std::this_thread::sleep_for(std::chrono::microseconds(stream_.below(delays_++, bound)));
}

void Disturbance::poison(const TypedSpan& memory) const {
    // All ones are a NaN in every floating-point type.
    if (faults_.poison) std::memset(memory.data, 0xFF, static_cast<std::size_t>(memory.bytes()));
}

}  // namespace fullshard::shard
