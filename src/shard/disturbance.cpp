#include "shard/disturbance.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

namespace fullshard::shard {

void Disturbance::delay() {
    if (faults_.max_delay_us <= 0) return;
    const auto bound = static_cast<std::uint64_t>(faults_.max_delay_us) + 1;
    std::this_thread::sleep_for(std::chrono::microseconds(stream_.below(delays_++, bound)));
}

void Disturbance::poison(std::span<float> memory) const {
    if (faults_.poison) std::ranges::fill(memory, std::numeric_limits<float>::quiet_NaN());
}

}  // namespace fullshard::shard
