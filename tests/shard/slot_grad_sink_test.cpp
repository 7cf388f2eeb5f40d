#include "shard/slot_grad_sink.h"

#include "base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace fullshard::shard {
namespace {

Unit unit_of_three() {
    std::vector<spec::ParameterSpec> parameters(3);
    parameters[0].shape = {5};
    parameters[1].shape = {70};
    parameters[1].trainable = false;
    parameters[2].shape = {3};
    return Unit("u", {0}, parameters, 2);
}

TEST(SlotGradSink, FirstWriteOverwritesLaterOnesAddAndTheRestIsZero) {
    const Unit unit = unit_of_three();
    SlotGradSink sink(unit);
    std::vector<float> slot(static_cast<std::size_t>(unit.padded()), NAN);
    sink.begin(std::span<float>(slot));
    GradSink::Target first = sink.open(2);
    EXPECT_FALSE(first.accumulate);
    EXPECT_EQ(first.memory.count, 3);
    std::fill_n(reinterpret_cast<float*>(first.memory.data), 3, 1.5F);
    EXPECT_TRUE(sink.open(2).accumulate);
    sink.seal(zero);
    for (std::int64_t i = 0; i < unit.padded(); ++i) {
        const std::int64_t place = unit.placement(2).offset;
        EXPECT_EQ(slot[static_cast<std::size_t>(i)], i >= place && i < place + 3 ? 1.5F : 0.0F)
            << i;
    }
    sink.begin(std::span<float>(slot));
    EXPECT_FALSE(sink.open(2).accumulate);  // a new micro-batch starts over
}

// What no_sync does: gradients of several micro-batches meet in one slot.
TEST(SlotGradSink, AResumedMicroBatchAddsToTheOnesBefore) {
    const Unit unit = unit_of_three();
    SlotGradSink sink(unit);
    std::vector<float> slot(static_cast<std::size_t>(unit.padded()), NAN);
    sink.begin(std::span<float>(slot));
    EXPECT_FALSE(sink.open(0).accumulate);
    sink.pause();
    EXPECT_THROW(sink.open(0), LogicError);
    sink.resume();
    EXPECT_TRUE(sink.open(0).accumulate);
    EXPECT_FALSE(sink.open(2).accumulate);  // first used in the last micro-batch
    sink.seal(zero);
}

TEST(SlotGradSink, RefusesFrozenParametersAndWritesAfterSeal) {
    const Unit unit = unit_of_three();
    SlotGradSink sink(unit);
    std::vector<float> slot(static_cast<std::size_t>(unit.padded()));
    EXPECT_THROW(sink.open(0), LogicError);
    sink.begin(std::span<float>(slot));
    EXPECT_THROW(sink.open(1), LogicError);
    sink.seal(zero);
    EXPECT_THROW(sink.open(0), LogicError);
}

}  // namespace
}  // namespace fullshard::shard
