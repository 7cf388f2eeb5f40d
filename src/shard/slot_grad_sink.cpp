#include "shard/slot_grad_sink.h"

#include "base/error.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fullshard::shard {

/// All floating-point types have a zero whose bits are zeros.
void zero(const TypedSpan& memory) {
    std::memset(memory.data, 0, static_cast<std::size_t>(memory.bytes()));
}

void SlotGradSink::begin(const TypedSpan& slot) {
    ensure(slot.count == unit_->padded(), "a gradient slot fits its unit");
    slot_ = slot;
    open_ = true;
    std::ranges::fill(written_, char{0});
}

GradSink::Target SlotGradSink::open(std::int64_t index) {
    ensure(open_, "gradients are written between begin_gradients and reduce");
    const auto i = static_cast<std::size_t>(index);
    ensure(i < written_.size() && unit_->parameters()[i].trainable,
           "a gradient belongs to a trainable parameter of the unit");
    const Placement& place = unit_->placement(i);
    const bool accumulate = std::exchange(written_[i], char{1}) != 0;
    return {slot_.part(place.offset, place.numel), accumulate};
}

void SlotGradSink::seal(const std::function<void(const TypedSpan&)>& zero) {
    ensure(open_, "a micro-batch's gradients are sealed once");
    const auto zero_range = [&](std::int64_t begin, std::int64_t end) {
        if (begin < end) zero(slot_.part(begin, end - begin));
    };
    // Parameters lie in the flat parameter trainable first, each group in order: walk them in
    // place.
    std::int64_t end = 0;
    for (const bool trainable : {true, false}) {
        for (std::size_t i = 0; i < written_.size(); ++i) {
            if (unit_->parameters()[i].trainable != trainable) continue;
            const Placement& place = unit_->placement(i);
            zero_range(end, place.offset);
            end = place.offset + place.numel;
            if (!written_[i]) zero_range(place.offset, end);
        }
    }
    zero_range(end, unit_->padded());
    open_ = false;
}

}  // namespace fullshard::shard
