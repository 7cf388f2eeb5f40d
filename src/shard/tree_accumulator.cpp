#include "shard/tree_accumulator.h"

#include "base/error.h"
#include "kernels/ordered_sum.h"

#include <bit>

namespace fullshard::shard {

std::int64_t TreeAccumulator::levels_for(std::int64_t contributions) {
    return std::bit_width(static_cast<std::uint64_t>(contributions));
}

TreeAccumulator::TreeAccumulator(std::span<float> memory, std::int64_t levels)
    : memory_(memory), levels_(levels) {}

std::span<float> TreeAccumulator::level(std::int64_t index) const {
    ensure(index < levels_, "no more micro-batches than the accumulator was made for");
    const std::size_t length = memory_.size() / static_cast<std::size_t>(levels_);
    return memory_.subspan(static_cast<std::size_t>(index) * length, length);
}

std::span<float> TreeAccumulator::target() const {
    // The level at which this contribution's carry will stop is empty now: sum there, copy nothing.
    return level(std::countr_one(count_));
}

void TreeAccumulator::commit() {
    const std::int64_t top = std::countr_one(count_);
    for (std::int64_t k = 0; k < top; ++k) kernels::add_into(level(top), level(k));
    ++count_;
}

void TreeAccumulator::finish() {
    ensure(count_ > 0, "a step has at least one micro-batch");
    std::uint64_t rest = count_;
    std::int64_t sum = std::countr_zero(rest);
    for (rest &= rest - 1; rest != 0; rest &= rest - 1) {
        const std::int64_t next = std::countr_zero(rest);
        kernels::add_into(level(next), level(sum));
        sum = next;
    }
    result_ = level(sum);
}

}  // namespace fullshard::shard
