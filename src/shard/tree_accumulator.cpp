#include "shard/tree_accumulator.h"

#include "base/error.h"
#include "kernels/ordered_sum.h"

#include <algorithm>
#include <bit>

namespace fullshard::shard {

std::int64_t TreeAccumulator::levels_for(std::int64_t contributions, SumOrder order) {
    const std::int64_t tree = std::bit_width(static_cast<std::uint64_t>(contributions));
    return order == SumOrder::kTree ? tree : std::min<std::int64_t>(tree, 2);
}

TreeAccumulator::TreeAccumulator(std::span<float> memory, std::int64_t levels, SumOrder order)
    : memory_(memory), levels_(levels), order_(order) {}

std::span<float> TreeAccumulator::level(std::int64_t index) const {
    ensure(index < levels_, "no more micro-batches than the accumulator was made for");
    const std::size_t length = memory_.size() / static_cast<std::size_t>(levels_);
    return memory_.subspan(static_cast<std::size_t>(index) * length, length);
}

std::int64_t TreeAccumulator::target_level() const {
    if (order_ == SumOrder::kFast) return static_cast<std::int64_t>(count_ % 2);
    // The level at which this contribution's carry will stop is empty now: sum there, copy nothing.
    return std::countr_one(count_);
}

std::span<float> TreeAccumulator::target() const {
    return level(target_level());
}

void TreeAccumulator::commit() {
    const std::int64_t top = target_level();
    if (order_ == SumOrder::kFast) {
        if (count_ > 0) kernels::add_into(level(top), level(1 - top));
    } else {
        for (std::int64_t k = 0; k < top; ++k) kernels::add_into(level(top), level(k));
    }
    ++count_;
}

void TreeAccumulator::finish() {
    ensure(count_ > 0, "a step has at least one micro-batch");
    if (order_ == SumOrder::kFast) {
        result_ = level(static_cast<std::int64_t>((count_ - 1) % 2));
        return;
    }
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
