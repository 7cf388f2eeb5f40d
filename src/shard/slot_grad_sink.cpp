#include "shard/slot_grad_sink.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace fullshard::shard {

namespace {
std::span<float> part(std::span<float> slot, std::int64_t begin, std::int64_t end) {
    return slot.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}
}  // namespace

void SlotGradSink::begin(std::span<float> slot) {
    ensure(static_cast<std::int64_t>(slot.size()) == unit_->padded(),
           "a gradient slot fits its unit");
    slot_ = slot;
    std::ranges::fill(written_, char{0});
}

GradSink::Target SlotGradSink::open(std::int64_t index) {
    ensure(open_for_writing(), "gradients are written between begin_gradients and reduce");
    const auto i = static_cast<std::size_t>(index);
    ensure(i < written_.size() && unit_->parameters()[i].trainable,
           "a gradient belongs to a trainable parameter of the unit");
    const Placement& place = unit_->placement(i);
    const bool accumulate = std::exchange(written_[i], char{1}) != 0;
    return {part(slot_, place.offset, place.offset + place.numel), accumulate};
}

void SlotGradSink::seal() {
    ensure(open_for_writing(), "a micro-batch's gradients are sealed once");
    // Parameters lie in the flat parameter trainable first, each group in order: walk them in
    // place.
    std::int64_t end = 0;
    for (const bool trainable : {true, false}) {
        for (std::size_t i = 0; i < written_.size(); ++i) {
            if (unit_->parameters()[i].trainable != trainable) continue;
            const Placement& place = unit_->placement(i);
            std::ranges::fill(part(slot_, end, place.offset), 0.0F);
            end = place.offset + place.numel;
            if (!written_[i]) std::ranges::fill(part(slot_, place.offset, end), 0.0F);
        }
    }
    std::ranges::fill(part(slot_, end, unit_->padded()), 0.0F);
    slot_ = {};
}

}  // namespace fullshard::shard
